import { deadlines } from "../../src/infrastructure/database/deadlines.ts"
import { slowness } from "./slowness.ts"

// Before the tests of a file: a service in this process gives up as much later as the machine is slower.
deadlines.request = 4_000 * slowness
