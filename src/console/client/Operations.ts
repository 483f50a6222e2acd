import type { HttpApi, HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import type { Api } from "../../http/api/Api.ts"

type Groups<A> = A extends HttpApi.HttpApi<infer _Id, infer Groups> ? Groups : never
type Endpoints<G> = G extends HttpApiGroup.HttpApiGroup<infer _Id, infer Endpoints, infer _TopLevel> ? Endpoints : never
type GroupName = Groups<typeof Api>["identifier"]
type EndpointsOf<Name extends GroupName> = Endpoints<Extract<Groups<typeof Api>, { readonly identifier: Name }>>

/** The id of an operation in the OpenAPI document, and in `operations` of `Me`. */
export type OperationId = {
  [Name in GroupName]: `${Name}.${EndpointsOf<Name>["identifier"]}`
}[GroupName]

type Operation<Id extends OperationId> = Id extends `${infer Group extends GroupName}.${infer Name}`
  ? Extract<EndpointsOf<Group>, { readonly identifier: Name }>
  : never

/** The JSON of a schema. The definition wraps a schema in the one of its encoding. */
type Wire<S> = [S] extends [never]
  ? unknown
  : S extends { readonly schema: { readonly Encoded: infer E } }
    ? E
    : S extends { readonly Encoded: infer E }
      ? E
      : unknown

/** Path, query and body of an operation, in one object. */
export type Args<Id extends OperationId> =
  Operation<Id> extends infer E
    ? Wire<HttpApiEndpoint.Params<E>> & Wire<HttpApiEndpoint.Query<E>> & Wire<HttpApiEndpoint.Payload<E>>
    : never

/** The body of the response. */
export type ResponseBody<Id extends OperationId> = Wire<HttpApiEndpoint.Success<Operation<Id>>>
