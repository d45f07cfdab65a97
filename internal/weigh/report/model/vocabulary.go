// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strconv"
	"strings"
)

// ParamEvent is the event that happened to the backends.
const ParamEvent = "event"

// The events that are shown in a special way.
const (
	EventFlap   = "flap"
	EventReload = "reload"
	// EventSilent is the event in which a backend's host falls silent: until the balancer has noticed, every balancer
	// loses something.
	EventSilent = "silent"
	// eventReset is the event in which a drained backend resets its connections.
	eventReset = "reset"
	// eventRestart and those below it are the events in which the balancer's process ends.
	eventRestart = "restart"
	eventUpgrade = "upgrade"
	eventKill    = "kill"
	eventStop    = "stop"
	// eventQuiet is the event in which nothing happens.
	eventQuiet = "quiet"
	// EventShare is the event in which the backend of each flow is determined.
	EventShare = "share"
)

// EventTitles name the events in words.
var EventTitles = map[string]string{
	"add": "Added", "remove": "Removed", "drain": "Drained", "reweigh": "Weighed anew",
	EventFlap: "Flapped", EventReload: "Reloaded", "undo": "Undone",
	eventQuiet: "Undisturbed", eventRestart: "Restarted", eventUpgrade: "Upgraded", eventKill: "Killed",
	eventStop:  "Stopped and started",
	"lb-drain": "Balancer drained", "lb-undrain": "Balancer undrained", "lb-stop": "Balancer stopped",
	"lb-start": "Balancer started", "lb-kill": "Balancer killed", "lb-revive": "Balancer revived",
	"lb-cut": "Balancer cut off", "lb-mend": "Balancer connected again", "lb-hang": "Speaker hung",
	"lb-wake": "Speaker woke", "lb-change": "Backends changed without one balancer",
	"lb-transition": "Balancer killed in a transition", "lb-return": "Balancer returned",
	EventSilent: "Fell silent", "dies": "Died", "hangs": "Hung", eventReset: "Drained and reset",
	EventShare: "One of all removed",
}

// EventText names an event in a sentence.
func EventText(v string) string {
	if title, ok := EventTitles[v]; ok {
		return strings.ToLower(title)
	}
	return v
}

// Parameters of an open loop.
const (
	// ParamArrivals is the number of requests that are due each second.
	ParamArrivals = "arrivals"
	// ParamP99Bound bounds the latency of 99 % of the requests where the highest rate is searched for.
	ParamP99Bound = "p99_bound_ms"
)

// Parameters of the distribution of flows.
const (
	ParamBackends = "backends"
	ParamWeights  = "weights"
	ParamEnded    = "ended"
)

// endedText describes how flows of this load end.
func endedText(v string) string {
	switch v {
	case "none":
		return "no flow ends"
	case "half":
		return "half of the flows end"
	}
	return v
}

// ParamStage is the stage of the flows that take memory.
const ParamStage = "stage"

// Parameters of the size of a configuration.
const (
	ParamServices = "services"
	ParamOf       = "of"
	// ParamBeside is the size beside which the small configuration was measured.
	ParamBeside = "beside"
)

// ParamFlood is the kind of a flood's packets.
const ParamFlood = "flood"

// beyondText describes where the packets that the balancer sends end.
func beyondText(v string) string {
	if v == "drop" {
		return "dropped behind the balancer"
	}
	return "answered by the servers"
}

// Parameters of packet-level loads.
const (
	// ParamWire is the kind of connections.
	ParamWire = "wire"
	// ParamOffered is the offered rate, or how that was found.
	ParamOffered = "offered"
)

// Words of a packet-level load.
const (
	WireCapacity = "capacity"
	wireSession  = "session"
)

func wireText(v string) string {
	switch v {
	case "setup":
		return "connection setups"
	case wireSession:
		return "sessions"
	case WireCapacity:
		return "connections that are held"
	case "udp":
		return "UDP datagrams"
	case "dns":
		return "DNS queries"
	case "flood":
		return "SYNs"
	}
	return v
}

func offeredText(v string) string {
	if _, err := strconv.ParseFloat(v, 64); err == nil {
		return v + "/s offered"
	}
	if v == "search" {
		return "the highest rate without loss, searched for"
	}
	return v + " offered"
}

// Parameters of the DNS experiment.
const (
	// ParamQuestion is the question to name servers.
	ParamQuestion         = "question"
	ParamGeneratorThreads = "generator_threads"
	// ParamGenerators is the number of generators, and ParamMostQueries the most queries a second that each sends.
	ParamGenerators  = "clients"
	ParamMostQueries = "queries_per_second_most"
)

const (
	// ParamTuned is the profile that tuned the hosts.
	ParamTuned = "tuned"
	// Untuned is the value of ParamTuned where hosts have the kernel's own settings.
	Untuned = "none"
)

// TunedText names the profile that tuned the hosts.
func TunedText(v string) string {
	if v == Untuned {
		return "not tuned"
	}
	return "tuned by " + v
}

// ChangeText describes the effect of a change of backends on a flow.
func ChangeText(v string) string {
	switch v {
	case "unmoved":
		return "slot not moved"
	case "pinned":
		return "slot moved, flow pinned"
	case "unpinned":
		return "slot moved, first packet"
	}
	return v
}

// ParamPinned is whether generators are pinned to cores.
const ParamPinned = "pinned"

// syncText describes the method by which several IPVS balancers continue each other's connections.
func syncText(v string) string {
	switch v {
	case "none":
		return "no sync daemon"
	case "usual":
		return "sync daemon"
	case "every":
		return "sync daemon for each packet"
	case "sloppy":
		return "sloppy_tcp"
	}
	return "sync " + v
}

// fromText describes where the load generators of a group were.
func fromText(v string) string {
	if v == FromBalancer {
		return "from the balancer's host"
	}
	return "from beyond the balancer's host"
}

func familyText(v string) string { return strings.Replace(v, "ip", "IP", 1) }

func packetsText(v string) string {
	if v == ForeignPackets {
		return "not ours"
	}
	return v + " flow"
}

// Parameters that the report treats in a special way.
const (
	paramThreads     = "threads"
	ParamConcurrency = "concurrency"
	ParamFileBytes   = "file_bytes"
	ParamStreams     = "streams"
	ParamFlows       = "flows"
	ParamHook        = "hook"
	ParamScheduler   = "scheduler"
	// ParamPackets is the kind of packets for the balancer: of known or new flows, or foreign.
	ParamPackets = "packets"
	// ParamOuter is the family of a tunnel's packets.
	ParamOuter = "outer"
	// ParamDirection is the direction of packets, requests or replies, where both go through the balancer.
	ParamDirection = "direction"
	// ParamChange is the effect that a change of the backends, under way, has on a flow.
	ParamChange = "change"
	// ParamConfigured is the balancer's configuration, where points are compared by that.
	ParamConfigured = "configured"
	// paramFrom is the place of the load generators where servers are containers on the balancer's host: beyond that
	// host, or FromBalancer, on it.
	paramFrom    = "from"
	FromBalancer = "balancer"
)

// Values of parameters.
const (
	// ForeignPackets are packets of no service, NewPackets each open a flow.
	ForeignPackets = "foreign"
	NewPackets     = "new"
	KnownPackets   = "known"
	ReplyDirection = "reply"
)
