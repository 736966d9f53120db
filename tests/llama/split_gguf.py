"""Splits a GGUF file into parts as llama.cpp names and marks them (-00001-of-000NN; split.no, split.count,
split.tensors.count), each with a share of the tensors. Metadata is copied into the first part only."""

import pathlib
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def skip_value(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            for _ in range(count):
                self.skip_value(inner)
        else:
            self.at += SIZES[kind]


def text(value):
    return struct.pack("<Q", len(value)) + value


def split(source, folder, parts):
    data = pathlib.Path(source).read_bytes()
    r = Reader(data)
    assert r.number("I") == 0x46554747
    version, tensor_count, pair_count = r.number("I"), r.number("Q"), r.number("Q")
    start = r.at
    for _ in range(pair_count):
        r.string()
        r.skip_value(r.number("I"))
    pairs = data[start:r.at]
    tensors = []
    for _ in range(tensor_count):
        name = r.string()
        dims = [r.number("Q") for _ in range(r.number("I"))]
        tensors.append((name, dims, r.number("I"), r.number("Q")))
    base = (r.at + 31) // 32 * 32
    ends = sorted(t[3] for t in tensors) + [len(data) - base]
    size = {offset: ends[i + 1] - offset for i, offset in enumerate(ends[:-1])}

    for part in range(parts):
        mine = tensors[tensor_count * part // parts:tensor_count * (part + 1) // parts]
        marks = (text(b"split.no") + struct.pack("<IH", 2, part) + text(b"split.count") + struct.pack("<IH", 2, parts) +
                 text(b"split.tensors.count") + struct.pack("<Ii", 5, tensor_count))
        head = struct.pack("<IIQQ", 0x46554747, version, len(mine), (pair_count if part == 0 else 0) + 3)
        head += (pairs if part == 0 else b"") + marks
        body, offset = b"", 0
        for name, dims, kind, at in mine:
            head += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
            head += struct.pack("<IQ", kind, offset)
            content = data[base + at:base + at + size[at]]
            content += b"\0" * (-len(content) % 32)
            body += content
            offset += len(content)
        head += b"\0" * (-len(head) % 32)
        (pathlib.Path(folder) / f"model-{part + 1:05d}-of-{parts:05d}.gguf").write_bytes(head + body)
