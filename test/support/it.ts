/* oxlint-disable no-restricted-imports -- the only place that wraps it */
import {
  it as effectIt,
  layer as effectLayer,
  type TestAPI,
  type TestContext,
  type TestOptions,
  type Vitest,
} from "@effect/vitest"
import { Effect, type Layer, type Scope } from "effect"

/** A test's steps, as those of `Effect.gen`, or its effect. */
type Body<R, Args extends ReadonlyArray<unknown>> = (
  ...args: Args
) => Generator<Effect.Effect<unknown, unknown, R>, unknown, never> | Effect.Effect<unknown, unknown, R>

type Test<R, Args extends ReadonlyArray<unknown> = readonly [TestContext]> = (
  name: string,
  body: Body<R, Args>,
  options?: number | TestOptions,
) => void

interface Tester<R> extends Test<R> {
  readonly skip: Test<R>
  readonly skipIf: (condition: unknown) => Test<R>
  readonly each: <T>(cases: ReadonlyArray<T>) => Test<R, readonly [T, TestContext]>
  readonly prop: Vitest.Tester<R>["prop"]
}

/** What registers tests; those of a layer have its services, and no clock of the test if it excludes that. */
export interface TestsWith<R = never> extends TestAPI {
  readonly effect: Tester<R | Scope.Scope>
  readonly prop: Vitest.Methods["prop"]
}

/** The effect of a test of a suite that does something before each. */
export const toEffect =
  <R, Args extends ReadonlyArray<unknown>>(body: Body<R, Args>) =>
  (...args: Args): Effect.Effect<unknown, unknown, R> => {
    const made = body(...args)
    return Effect.isEffect(made) ? made : Effect.gen(() => made)
  }

const withSteps = <R>(tester: Vitest.Tester<R>): Tester<R> => {
  const taking =
    (test: Vitest.Test<R>): Test<R> =>
    (name, body, options) =>
      test(name, toEffect(body), options)
  return Object.assign(taking(tester), {
    skip: taking(tester.skip),
    skipIf: (condition: unknown) => taking(tester.skipIf(condition)),
    each:
      <T>(cases: ReadonlyArray<T>): Test<R, readonly [T, TestContext]> =>
      (name, body, options) =>
        tester.each(cases)(name, toEffect(body), options),
    prop: tester.prop,
  })
}

/** `it` with other testers. It stays what it is otherwise, which a copy would not: Vitest makes `it.each` on demand. */
const replacing = <R, Testers extends object>(it: Vitest.MethodsNonLive<R>, testers: Testers) =>
  new Proxy<TestAPI>(it, {
    get: (target, name, receiver) => Reflect.get(name in testers ? testers : target, name, receiver) as unknown,
  }) as TestAPI & Pick<Vitest.Methods, "prop"> & Testers

/**
 * The tests of Effect's own library, whose body may be its steps alone: `it.effect("…", function* () { … })` with a
 * clock of the test, `it.live` with the real one.
 */
export const it = replacing(effectIt, { effect: withSteps(effectIt.effect), live: withSteps(effectIt.live) })

/** Tests with the services of a layer, which is built once for them. */
export const layer =
  <R, E>(services: Layer.Layer<R, E>, options?: Parameters<typeof effectLayer>[1]) =>
  (name: string, tests: (it: TestsWith<R>) => void) =>
    effectLayer(services, options)(name, (it) => {
      const testers = { effect: withSteps(it.effect) }
      tests(replacing(it, testers))
    })
