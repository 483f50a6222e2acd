/** What the server writes into the page: how the portal looks, and in a frame the origins that may show it. */
export const embedded = JSON.parse(document.body.dataset["portal"] ?? "{}") as {
  readonly origins?: ReadonlyArray<string>
}

/** Whether this is the portal in a frame of another page. */
export const isInFrame = embedded.origins !== undefined
