import { Schema } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { ReportedTokens, TokenLabel } from "../../domain/keys/LeakedKeys.ts"
import { GithubSignature } from "./middleware.ts"
import { furtherFieldsIgnored } from "./parseOptions.ts"
import { access } from "./security.ts"

export class SecretScanningGroup extends HttpApiGroup.make("secretScanning")
  .add(
    HttpApiEndpoint.post("github", "/api/v0/secret-scanning/github", {
      payload: ReportedTokens,
      success: Schema.Array(TokenLabel),
    })
      .middleware(GithubSignature)
      .annotateMerge(access.github)
      .annotate(HttpApi.PayloadParseOptions, furtherFieldsIgnored)
      .annotate(OpenApi.Summary, "Report leaked keys")
      .annotate(
        OpenApi.Description,
        "For GitHub's secret scanning partner program. Disables the reported keys for good and labels each token. At most " +
          "1,000 tokens. A body whose signature is not valid is a 401, and nothing happens.",
      ),
  )
  .annotateMerge(
    OpenApi.annotations({ title: "Secret scanning", description: "Reports of keys that were found in public." }),
  ) {}
