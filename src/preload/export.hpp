#pragma once
// Marks the functions that take the place of libc's. exports.map lists them once more: what is not
// in both is not visible to the program.

#define RESID_EXPORT extern "C" __attribute__((visibility("default")))
