/** The version of this release, as every `package.json` here has it. */
export const version = "1.0.0"
