import type { SchemaAST } from "effect"

/** How bodies and queries are read: one answer names all errors, and a field that the operation does not have is an error. */
export const knownFieldsOnly: SchemaAST.ParseOptions = { errors: "all", onExcessProperty: "error" }

/** For operations whose callers send more than the service reads: further fields are ignored. */
export const furtherFieldsIgnored: SchemaAST.ParseOptions = { errors: "all" }
