import { useEffect, useRef, useState } from "preact/hooks"
import { ago } from "../components/DateTime.tsx"
import { Dialog } from "../components/Dialog.tsx"
import { Field, Form, Input } from "../components/Form.tsx"
import { Icon } from "../components/Icon.tsx"
import { call, GatehouseError } from "../client/call.ts"
import type { OperationId } from "../client/Operations.ts"
import { useMay } from "../client/session.tsx"
import { useOrgId } from "./org.ts"
import { navigate, orgPath } from "./router.tsx"

interface Place {
  /** Whoever may not call these is not asked for it. */
  readonly needs: ReadonlyArray<OperationId>
  readonly noun: string
  /** The page of the org, before the id. */
  readonly page: string
  /** Fails with a 404 when nothing of this kind has the id. */
  readonly get: (orgId: string, id: string) => Promise<unknown>
}

/** What has a page and an id. */
const places: ReadonlyArray<Place> = [
  {
    needs: ["deliveries.get"],
    noun: "delivery",
    page: "deliveries",
    get: (orgId, delivery_id) => call("deliveries.get", { delivery_id }, { orgId }),
  },
  {
    needs: ["events.get"],
    noun: "event",
    page: "events",
    get: (orgId, event_id) => call("events.get", { event_id }, { orgId }),
  },
  {
    needs: ["jobs.get"],
    noun: "job",
    page: "jobs",
    get: (orgId, job_id) => call("jobs.get", { job_id }, { orgId }),
  },
  {
    needs: ["webhooks.get", "deliveries.list"],
    noun: "endpoint",
    page: "endpoints",
    get: (orgId, id) => call("webhooks.get", { id }, { orgId }),
  },
  {
    needs: ["schedules.get"],
    noun: "schedule",
    page: "schedules",
    get: (orgId, schedule_id) => call("schedules.get", { schedule_id }, { orgId }),
  },
  {
    // No operation reads one key; its usage is a 404 when there is none.
    needs: ["keys.list", "keys.usage"],
    noun: "key",
    page: "keys",
    get: (orgId, id) => call("keys.usage", { orgId, id, every: "hour", from: ago(3_600_000) }),
  },
]

const isMissing = (error: unknown) => error instanceof GatehouseError && error.status === 404

/** The page of what has the id. Fails when a place could not be asked and no other has the id. */
const findOne = async (asked: ReadonlyArray<Place>, orgId: string, id: string) => {
  const answers = await Promise.allSettled(asked.map(({ get }) => get(orgId, id)))
  const found = asked.find((_, i) => answers[i]!.status === "fulfilled")
  if (found !== undefined) return orgPath(orgId, `/${found.page}/${id}`)
  const failed = answers.find((answer) => answer.status === "rejected" && !isMissing(answer.reason))
  if (failed?.status === "rejected") throw failed.reason
  return undefined
}

/** Ids of a text that are looked for at most. */
const maxIds = 5

const idLength = 26

/** Whether a text may become an id while it is typed; an empty one may. */
const beginsAnId = (text: string) => /^(?:[0-7][0-9A-HJKMNP-TV-Z]*)?$/i.test(text.trim())

/** The ids in a text, such as a header or a line of a log, without that of the org. */
const idsIn = (text: string, orgId: string) => {
  const ids = text.toUpperCase().match(/\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b/g) ?? []
  return [...new Set(ids)].filter((id) => id !== orgId).slice(0, maxIds)
}

/** The page of the first id that something has. */
const find = async (asked: ReadonlyArray<Place>, orgId: string, ids: ReadonlyArray<string>) => {
  for (const id of ids) {
    const page = await findOne(asked, orgId, id)
    if (page !== undefined) return page
  }
  return undefined
}

const listed = (asked: ReadonlyArray<Place>) => {
  const nouns = asked.map(({ noun }) => noun)
  return `${nouns.slice(0, -1).join(", ")} or ${nouns.at(-1)}`
}

const Find = ({ onClose, orgId }: { readonly orgId: string; readonly onClose: () => void }) => {
  const may = useMay()
  const [text, setText] = useState("")
  const [missing, setMissing] = useState<string>()
  const asked = places.filter(({ needs }) => may(...needs))
  const ids = idsIn(text, orgId)
  const isMissed = ids.length > 0 && missing === ids.join()
  const error = isMissed
    ? `No ${listed(asked)} of this org has the id ${ids.join(" or ")}. It may be of another org, or older than what is kept.`
    : ids.length === 0 && (text.trim().length >= idLength || !beginsAnId(text))
      ? `This text has no id to look for. An id has ${idLength} letters and digits.`
      : undefined
  const isBegun = ids.length === 0 && error === undefined && text.trim() !== ""
  const open = async () => {
    const page = await find(asked, orgId, ids)
    if (page === undefined) return setMissing(ids.join())
    onClose()
    navigate(page)
  }
  return (
    <Dialog title="Find by id" onClose={onClose}>
      <Form submit="Find" isReady={ids.length > 0 && !isMissed} onSubmit={open} onCancel={onClose}>
        <Field
          label="Id"
          hint={
            isBegun
              ? `An id has ${idLength} letters and digits; this one has ${text.trim().length} so far.`
              : `The id of a ${listed(asked)}. Or a text that has one: the webhook-id header, a line of a log.`
          }
          error={error}
        >
          <Input value={text} onInput={setText} autocomplete="off" spellcheck={false} placeholder="webhook-id: 01K…" />
        </Field>
      </Form>
    </Dialog>
  )
}

const isShortcut = ({ altKey, ctrlKey, key, metaKey, shiftKey }: KeyboardEvent) =>
  key.toLowerCase() === "k" && ctrlKey !== metaKey && !altKey && !shiftKey

/** Opens the page of whatever has an id in the org of the page. */
export const FindById = () => {
  const orgId = useOrgId()
  const may = useMay()
  const button = useRef<HTMLButtonElement>(null)
  const [isOpen, setOpen] = useState(false)
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      // Narrow screens hide the navigation, and with it the dialog; another dialog stays alone.
      if (!isShortcut(event) || button.current?.checkVisibility() !== true) return
      if (document.querySelector("dialog[open]:not(.menu)") !== null) return
      event.preventDefault()
      setOpen(true)
    }
    document.addEventListener("keydown", press)
    return () => document.removeEventListener("keydown", press)
  }, [])
  if (orgId === undefined || !may("deliveries.get", "events.get")) return null
  return (
    <>
      <button
        ref={button}
        type="button"
        class="nav-link"
        aria-haspopup="dialog"
        aria-keyshortcuts="Control+K Meta+K"
        onClick={() => setOpen(true)}
      >
        <Icon name="search" />
        Find by id
        <kbd aria-hidden="true">{navigator.platform.startsWith("Mac") ? "⌘K" : "Ctrl K"}</kbd>
      </button>
      {isOpen && <Find orgId={orgId} onClose={() => setOpen(false)} />}
    </>
  )
}
