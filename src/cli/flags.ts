import { Config, Option } from "effect"
import { Flag, GlobalFlag } from "effect/cli"

/** Where the service is. */
export const Url = GlobalFlag.Setting("url")({
  flag: Flag.String("url").pipe(
    Flag.withDescription("The service's address; else GATEHOUSE_URL, else http://127.0.0.1:3000"),
    Flag.withFallbackConfig(Config.String("GATEHOUSE_URL")),
    Flag.withDefault("http://127.0.0.1:3000"),
  ),
})

/** Whether standard output is one JSON document for a program, and not text for a person. */
export const Json = GlobalFlag.Setting("json")({
  flag: Flag.Boolean("json").pipe(
    Flag.withDescription("Print exactly what the service answers, as one JSON document"),
    Flag.withDefault(false),
  ),
})

/** The flags of every list: how many, and from where on. */
export const page = {
  limit: Flag.Int("limit").pipe(
    Flag.withDescription("How many at most, 1 to 100; 50 unless told"),
    Flag.withDefault(50),
  ),
  cursor: Flag.String("cursor").pipe(Flag.withDescription("Go on where the list before ended"), Flag.optional),
}

/** The fields of the flags that were given: an optional field is absent, not undefined. */
export const given = <A extends Readonly<Record<string, Option.Option<unknown>>>>(flags: A) =>
  Object.fromEntries(
    Object.entries(flags).flatMap(([name, value]) => (Option.isSome(value) ? [[name, value.value]] : [])),
  ) as { readonly [K in keyof A]?: Option.Option.Value<A[K]> }
