/** Made by `vite.config.ts` from the definition of all operations. */
declare module "virtual:operation-table" {
  const table: import("../../../packages/client/src/runtime.ts").Operations
  export default table
}
