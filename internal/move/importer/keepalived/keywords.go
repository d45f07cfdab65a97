// SPDX-License-Identifier: Apache-2.0

package keepalived

import "github.com/jeoul/jeoul/internal/move/importer/draft"

// Places of Keywords: outside of all blocks, the block global_defs, a vrrp_instance, a virtual or real server, and a
// checker.
const (
	inTop     = "top"
	inGlobal  = "global_defs"
	inVRRP    = "vrrp_instance"
	inServer  = "virtual_server"
	inChecker = "checker"
)

// Reasons that several words share.
const (
	ownProcess = "is of keepalived's processes"
	ownMail    = "is of mail, which Jeoul does not send: watch its events, or its metrics"
	ownLog     = "says what keepalived logs and counts"
	ownScripts = "is of the rights of keepalived's scripts, each of which has a remark"
	ownNames   = "names it in keepalived's statistics"
	gratuitous = "says how often keepalived announces addresses; Jeoul announces its VIPs when it takes them, and by vrrp.announce_interval"
	starts     = "says how checks begin: Jeoul spreads their starts, and asks a new backend before it gets flows, unless none is healthy"
)

// Keywords are the words that have no effect that clients or real servers can see.
var Keywords = draft.Keywords{
	{Where: inGlobal, Name: "notification_email", Example: "notification_email { a@example.com }", Why: ownMail},
	{Where: inGlobal, Name: "notification_email_from", Example: "notification_email_from a@example.com", Why: ownMail},
	{Where: inGlobal, Name: "smtp_server", Example: "smtp_server 127.0.0.1", Why: ownMail},
	{Where: inGlobal, Name: "smtp_helo_name", Example: "smtp_helo_name lb", Why: ownMail},
	{Where: inGlobal, Name: "smtp_connect_timeout", Example: "smtp_connect_timeout 30", Why: ownMail},
	{Where: inGlobal, Name: "smtp_alert", Example: "smtp_alert", Why: ownMail},
	{Where: inGlobal, Name: "smtp_alert_checker", Example: "smtp_alert_checker", Why: ownMail},
	{Where: inGlobal, Name: "smtp_alert_vrrp", Example: "smtp_alert_vrrp", Why: ownMail},
	{Where: inGlobal, Name: "no_email_faults", Example: "no_email_faults", Why: ownMail},
	{Where: inGlobal, Name: "router_id", Example: "router_id lb1", Why: ownNames},
	{Where: inGlobal, Name: "enable_snmp_keepalived", Example: "", Why: ownLog},
	{Where: inGlobal, Name: "enable_snmp_checker", Example: "", Why: ownLog},
	{Where: inGlobal, Name: "enable_snmp_vrrp", Example: "", Why: ownLog},
	{Where: inGlobal, Name: "enable_traps", Example: "enable_traps", Why: ownLog},
	{Where: inGlobal, Name: "enable_dbus", Example: "", Why: ownProcess},
	{Where: inGlobal, Name: "script_user", Example: "script_user root", Why: ownScripts},
	{Where: inGlobal, Name: "enable_script_security", Example: "enable_script_security", Why: ownScripts},
	{Where: inTop, Name: "use_pid_dir", Example: "use_pid_dir", Why: ownProcess},
	{Where: inGlobal, Name: "max_auto_priority", Example: "max_auto_priority 1", Why: ownProcess},
	{Where: inGlobal, Name: "process_names", Example: "process_names", Why: ownProcess},
	{Where: inGlobal, Name: "checker_priority", Example: "checker_priority -5", Why: ownProcess},
	{Where: inGlobal, Name: "vrrp_priority", Example: "vrrp_priority -5", Why: ownProcess},
	{Where: inGlobal, Name: "checker_no_swap", Example: "checker_no_swap", Why: ownProcess},
	{Where: inGlobal, Name: "vrrp_no_swap", Example: "vrrp_no_swap", Why: ownProcess},
	{Where: inGlobal, Name: "checker_rlimit_rttime", Example: "", Why: ownProcess},
	{Where: inGlobal, Name: "vrrp_rlimit_rttime", Example: "", Why: ownProcess},
	{Where: inTop, Name: "instance", Example: "", Why: ownProcess},
	{Where: inGlobal, Name: "dynamic_interfaces", Example: "dynamic_interfaces",
		Why: "permits an interface that is not there yet, as Jeoul does"},
	{Where: inGlobal, Name: "checker_log_all_failures", Example: "checker_log_all_failures", Why: ownLog},
	{Where: inGlobal, Name: "lvs_flush", Example: "lvs_flush",
		Why: "empties IPVS when keepalived starts; Jeoul has a table of its own"},
	{Where: inGlobal, Name: "lvs_flush_onstop", Example: "lvs_flush_onstop",
		Why: "empties IPVS when keepalived ends; Jeoul has a table of its own"},
	{Where: inGlobal, Name: "vrrp_garp_master_delay", Example: "vrrp_garp_master_delay 5", Why: gratuitous},
	{Where: inGlobal, Name: "vrrp_garp_master_repeat", Example: "vrrp_garp_master_repeat 5", Why: gratuitous},
	{Where: inGlobal, Name: "vrrp_garp_interval", Example: "vrrp_garp_interval 0.1", Why: gratuitous},
	{Where: inGlobal, Name: "vrrp_gna_interval", Example: "vrrp_gna_interval 0.1", Why: gratuitous},
	{Where: inGlobal, Name: "vrrp_garp_lower_prio_delay", Example: "vrrp_garp_lower_prio_delay 5", Why: gratuitous},
	{Where: inGlobal, Name: "vrrp_garp_lower_prio_repeat", Example: "vrrp_garp_lower_prio_repeat 1", Why: gratuitous},

	{Where: inVRRP, Name: "state", Example: "state BACKUP",
		Why: "says what an instance begins as; the priorities decide, as without it"},
	{Where: inVRRP, Name: "debug", Example: "debug 0", Why: ownLog},
	{Where: inVRRP, Name: "accept", Example: "accept",
		Why: "has the active one take packets to the addresses, as Jeoul does"},
	{Where: inVRRP, Name: "garp_master_delay", Example: "garp_master_delay 5", Why: gratuitous},
	{Where: inVRRP, Name: "garp_master_repeat", Example: "garp_master_repeat 5", Why: gratuitous},
	{Where: inVRRP, Name: "garp_master_refresh_repeat", Example: "garp_master_refresh_repeat 1", Why: gratuitous},
	{Where: inVRRP, Name: "garp_lower_prio_delay", Example: "garp_lower_prio_delay 5", Why: gratuitous},
	{Where: inVRRP, Name: "garp_lower_prio_repeat", Example: "garp_lower_prio_repeat 1", Why: gratuitous},
	{Where: inVRRP, Name: "native_ipv6", Example: "", Why: "follows from the addresses"},
	{Where: inVRRP, Name: "smtp_alert", Example: "smtp_alert", Why: ownMail},

	{Where: inServer, Name: "alpha", Example: "alpha", Why: starts},
	{Where: inServer, Name: "omega", Example: "omega",
		Why: "says which programs run when keepalived ends, and each has a remark"},
	{Where: inServer, Name: "warmup", Example: "warmup 5", Why: starts},
	{Where: inServer, Name: "ha_suspend", Example: "ha_suspend",
		Why: "saves checks on a balancer that has no VIP; nothing arrives there"},
	{Where: inServer, Name: "inhibit_on_failure", Example: "inhibit_on_failure",
		Why: "keeps the flows of a real server that fails, as on_down: keep does"},
	{Where: inServer, Name: "sorry_server_inhibit", Example: "",
		Why: "keeps the flows of the sorry server, as those of backups are kept"},
	{Where: inServer, Name: "snmp_name", Example: "snmp_name web", Why: ownNames},
	{Where: inServer, Name: "sh-fallback", Example: "sh-fallback",
		Why: "sends clients of a real server that is gone to another, as Jeoul does"},
	{Where: inServer, Name: "mh-fallback", Example: "mh-fallback",
		Why: "sends clients of a real server that is gone to another, as Jeoul does"},
	{Where: inServer, Name: "smtp_alert", Example: "smtp_alert", Why: ownMail},

	{Where: inChecker, Name: "warmup", Example: "warmup 5", Why: starts},
	{Where: inChecker, Name: "alpha", Example: "alpha", Why: starts},
	{Where: inChecker, Name: "log_all_failures", Example: "log_all_failures", Why: ownLog},
}
