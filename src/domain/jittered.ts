/** The longest change of a wait, as a part of it. */
const jitter = 0.2

/**
 * A wait, up to a fifth shorter or longer: what fails together is not tried again together.
 *
 * @param chance from 0 to 1
 */
export const jittered = (wait: number, chance: number) => wait * (1 - jitter + 2 * jitter * chance)
