/** A count with its noun: "1 key", "2 keys". */
export const counted = (count: number, one: string, many = `${one}s`) => `${count} ${count === 1 ? one : many}`
