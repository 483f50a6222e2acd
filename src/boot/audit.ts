import { Layer } from "effect"
import { AuditLog } from "../domain/audit/AuditLog.ts"
import * as AuditLogSql from "../infrastructure/audit/AuditLogRepository.ts"

/** The audit log, which records the changes of the services below. */
export const audit = AuditLog.layer.pipe(Layer.provide(AuditLogSql.layer))
