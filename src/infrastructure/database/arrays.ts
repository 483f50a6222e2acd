import { PgTypes } from "@effect/sql-pg"
import type { DateTime } from "effect"
import { Result } from "effect"
import { dateOrNull } from "./fragments.ts"

// With an explicit element type: the driver infers it from the elements, of which all may be null.
const array = (values: ReadonlyArray<unknown>, elementOid: number) =>
  Result.getOrThrow(PgTypes.array(values, elementOid))

/** A parameter of type `text[]`. */
export const texts = (values: Iterable<string | null>) => array([...values], PgTypes.OID.text)
export const textsOrNull = (values: Iterable<string> | null) => (values === null ? null : texts(values))
/** A parameter of type `int[]`. */
export const integers = (values: Iterable<number | null>) => array([...values], PgTypes.OID.int4)
export const integersOrNull = (values: Iterable<number> | null) => (values === null ? null : integers(values))
/** A parameter of type `timestamptz[]`. */
export const times = (values: Iterable<DateTime.Utc | null>) =>
  array(
    [...values].map((time) => dateOrNull(time)),
    PgTypes.OID.timestamptz,
  )
/** A parameter of type `bytea[]`, from bytes in hex. */
export const bytes = (values: Iterable<string>) =>
  array(
    [...values].map((hex) => Buffer.from(hex, "hex")),
    PgTypes.OID.bytea,
  )
