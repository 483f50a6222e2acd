# Roles and settings of workflows of an org, by the command line `gatehouse` and no provider: they have names of your
# own, so that nothing has to remember an id. GATEHOUSE_URL and GATEHOUSE_TOKEN, an API key of the org, come from the
# environment, and are not in the state.
#
# (The provider `http` only reads: it has no resource that creates, and none that is destroyed.)

variable "org" {
  description = "The id of the org."
  type        = string
}

variable "roles" {
  description = "The permissions of each role."
  type        = map(list(string))
  default     = {}
}

variable "workflows" {
  description = "The settings of each workflow, as workflows/set takes them."
  type        = any
  default     = {}
}

# A name that goes is deleted. A change of what it means is set in place: for keys, the role is there all the time.
resource "terraform_data" "role" {
  for_each         = var.roles
  triggers_replace = var.org
  input            = "/api/v0/orgs/${var.org}/roles/${each.key}"
  provisioner "local-exec" {
    when        = destroy
    command     = "gatehouse api DELETE \"$ROLE\""
    environment = { ROLE = self.input }
  }
}

resource "terraform_data" "permissions" {
  for_each         = var.roles
  triggers_replace = [terraform_data.role[each.key].id, each.value]
  provisioner "local-exec" {
    command     = "gatehouse api PUT \"$ROLE\" --data \"$BODY\""
    environment = { ROLE = terraform_data.role[each.key].input, BODY = jsonencode({ permissions = each.value }) }
  }
}

resource "terraform_data" "workflow" {
  for_each         = var.workflows
  triggers_replace = var.org
  input            = jsonencode({ workflow = each.key })
  provisioner "local-exec" {
    when        = destroy
    command     = "gatehouse api POST /v1/workflows/delete --data \"$BODY\""
    environment = { BODY = self.input }
  }
}

resource "terraform_data" "settings" {
  for_each         = var.workflows
  triggers_replace = [terraform_data.workflow[each.key].id, each.value]
  provisioner "local-exec" {
    command     = "gatehouse api POST /v1/workflows/set --data \"$BODY\""
    environment = { BODY = jsonencode(merge({ workflow = each.key }, each.value)) }
  }
}
