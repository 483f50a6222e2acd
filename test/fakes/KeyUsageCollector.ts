import { Effect, Layer } from "effect"
import { type HourOfKey, KeyUsageRepository } from "#src/domain/keys/KeyUsage.ts"
import { World } from "./World.ts"

const idOf = ({ hour, keyId, orgId }: Pick<HourOfKey, "orgId" | "keyId" | "hour">) => `${orgId} ${keyId} ${hour}`

/** Usage of keys in memory. The sums of an org have no key. */
export const layer = Layer.effect(
  KeyUsageRepository,
  Effect.map(World, ({ orgs, usage }) => {
    const add = (one: HourOfKey) => {
      const { cost = 0, forbidden = 0, limited = 0, valid = 0 } = usage.get(idOf(one)) ?? {}
      usage.set(idOf(one), {
        ...one,
        valid: valid + one.valid,
        forbidden: forbidden + one.forbidden,
        limited: limited + one.limited,
        cost: cost + one.cost,
      })
    }
    return KeyUsageRepository.of({
      add: (hours) =>
        Effect.sync(() => {
          for (const one of hours.filter(({ orgId }) => orgs.has(orgId))) {
            add(one)
            add({ ...one, keyId: "" })
          }
        }),

      find: (orgId, keyId = "", { every, from, to }) =>
        Effect.sync(() => {
          const own = [...usage.values()].filter(
            (one) => one.orgId === orgId && one.keyId === keyId && one.hour >= from && one.hour < to,
          )
          const groups = Map.groupBy(own, ({ hour }) => from + Math.floor((hour - from) / every) * every)
          const sum = (hours: ReadonlyArray<HourOfKey>, name: "valid" | "forbidden" | "limited" | "cost") =>
            hours.reduce((total, one) => total + one[name], 0)
          return [...groups].map(([hour, hours]) => ({
            hour,
            valid: sum(hours, "valid"),
            forbidden: sum(hours, "forbidden"),
            limited: sum(hours, "limited"),
            cost: sum(hours, "cost"),
          }))
        }),

      removeOld: (before, limit) =>
        Effect.sync(() => {
          const old = [...usage.values()].filter(({ hour }) => hour < before).slice(0, limit)
          for (const one of old) usage.delete(idOf(one))
          return old.length
        }),
    })
  }),
)
