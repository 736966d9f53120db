# filled in by the install issue part
