// SPDX-License-Identifier: Apache-2.0

// Package results is the contract between a run and everything made from it: a run writes results.json, and tables,
// plots and reports read nothing else.
package results

import (
	"maps"
	"slices"
	"time"
)

// Schema is the version of the contract that this package reads and writes.
const Schema = 1

// Run is the content of a results.json.
type Run struct {
	Schema int `json:"schema"`
	// Suite is the suite's name; Title is the headline of a report.
	Suite string `json:"suite"`
	Title string `json:"title,omitempty"`
	// SuiteDigest is the SHA-256 of the suite's file, in hexadecimal: a run that is resumed compares it to check that
	// the suite is still the same.
	SuiteDigest string `json:"suite_digest,omitempty"`
	// Command is the command line that made the run.
	Command string `json:"command,omitempty"`
	// Quick: the suite ran in its short form.
	Quick bool `json:"quick,omitempty"`
	// Only are the subjects that were selected, Loads the loads; empty means all of the suite's.
	Only  []string `json:"only,omitempty"`
	Loads []string `json:"loads,omitempty"`
	// Repeats is the number of repeats of every point, whatever the suite says; 0 means the suite's number.
	Repeats int `json:"repeats,omitempty"`
	// Interrupted: the run ended before its last trial.
	Interrupted bool `json:"interrupted,omitempty"`
	// Summarised: the run was read from a summary; see WriteSummary for the parts that it lacks.
	Summarised bool      `json:"summarised,omitempty"`
	Started    time.Time `json:"started"`
	Ended      time.Time `json:"ended,omitzero"`
	// Resumed are the times at which the run was resumed.
	Resumed     []time.Time `json:"resumed,omitempty"`
	Environment Environment `json:"environment"`
	Trials      []Trial     `json:"trials"`
	// Baseline is the subject that the others are compared with; empty is direct.
	Baseline string `json:"baseline,omitempty"`
	// Published are figures from a document, measured elsewhere by others; a report shows them beside the run's, in a
	// separate table.
	Published *Published `json:"published,omitempty"`
}

// Environment is the environment of a run, from which a reader can judge or repeat it.
type Environment struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	// MemoryBytes is the machine's memory.
	MemoryBytes uint64 `json:"memory_bytes"`
	// Versions maps a program (jeoul, nginx, haproxy, ab, wrk, …) to its version.
	Versions map[string]string `json:"versions"`
	// Commit is the source revision of jeoul, with "+dirty" where it was changed.
	Commit string `json:"commit"`
	// Limits maps a limit (open_files, …) to its value.
	Limits map[string]string `json:"limits"`
	// Virtual is nil where the run was on the machine itself.
	Virtual *Virtual `json:"virtual,omitempty"`
	// Notes are facts about the laboratory that a figure depends on.
	Notes []string `json:"notes,omitempty"`
}

// Virtual is the virtual machine of a run. The rest of the environment was read inside it.
type Virtual struct {
	// Emulator is the program and its version; Accelerator is how it executed instructions: kvm, tcg (emulated) or
	// tcg-icount.
	Emulator    string `json:"emulator"`
	Accelerator string `json:"accelerator"`
	// Reason is the reason for the accelerator, if there was a choice.
	Reason string `json:"reason,omitempty"`
	// Instructions: the clock counted instructions, a nanosecond each.
	Instructions bool `json:"clock_counts_instructions,omitempty"`
	// Package is the kernel's package, Clock its clock source.
	Package string `json:"kernel_package,omitempty"`
	Clock   string `json:"clock_source,omitempty"`
	// HostKernel, HostCPU and HostCores belong to the machine that it ran on.
	HostKernel string `json:"host_kernel"`
	HostCPU    string `json:"host_cpu"`
	HostCores  int    `json:"host_cores"`
}

// Trial is one subject under one load with one set of parameters, once.
type Trial struct {
	Subject string         `json:"subject"`
	Load    string         `json:"load"`
	Params  map[string]any `json:"params"`
	// Repeat counts from 1.
	Repeat int `json:"repeat"`
	// Valid is false where the trial could not run or must not be quoted; the
	// reason is in Notes.
	Valid     bool               `json:"valid"`
	Saturated Part               `json:"saturated"`
	Notes     []string           `json:"notes"`
	Metrics   map[string]float64 `json:"metrics"`
	// Samples are the measurements from which metrics were chosen, by the metrics' names, in the order in which they
	// were measured; absent where a trial is one measurement.
	Samples  map[string][]float64 `json:"samples,omitempty"`
	Backends []Backend            `json:"backends,omitempty"`
}

// Part names the part that limited a trial.
type Part string

// The parts that a trial can saturate.
const (
	SaturatedBalancer Part = "balancer"
	SaturatedClient   Part = "client"
	SaturatedBackend  Part = "backend"
	SaturatedNone     Part = "none"
	SaturatedUnknown  Part = "unknown"
)

// Backend holds the counts of one backend of a trial.
type Backend struct {
	Name        string `json:"name"`
	Address     string `json:"address"`
	Connections uint64 `json:"connections"`
	// Queries is the number of queries that reached it over UDP, under a load that uses UDP.
	Queries uint64 `json:"queries,omitempty"`
	// CPUPercent is the CPU use of the server's process, in per cent of one core.
	CPUPercent float64 `json:"cpu_percent,omitempty"`
}

// Published is a table from a document.
type Published struct {
	Source  string `json:"source"`
	Machine string `json:"machine"`
	// Columns and Rows are those that the publication prints.
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
	Notes   []string   `json:"notes,omitempty"`
	// Beside selects the run's figures that are shown beside the published ones.
	Beside []Beside `json:"beside,omitempty" yaml:"beside"`
}

// UnknownColumns returns the words in a Beside that the table does not have: titles of columns that do not exist, and
// words that no row has in the named column.
func (p *Published) UnknownColumns(b Beside) []string {
	var unknown []string
	for _, title := range append([]string{b.Figure, b.Column}, slices.Sorted(maps.Keys(b.Params))...) {
		if !slices.Contains(p.Columns, title) {
			unknown = append(unknown, title)
		}
	}
	at := slices.Index(p.Columns, b.Column)
	for _, word := range slices.Sorted(maps.Keys(b.Subjects)) {
		if at >= 0 && !slices.ContainsFunc(p.Rows, func(row []string) bool {
			return len(row) > at && row[at] == word
		}) {
			unknown = append(unknown, word)
		}
	}
	return unknown
}

// Beside puts figures of the run beside the figures in a column of a document.
type Beside struct {
	// Figure is the title of the publication's column.
	Figure string `json:"figure" yaml:"figure"`
	// Load and Metric name the run's figures.
	Load   string `json:"load" yaml:"load"`
	Metric string `json:"metric" yaml:"metric"`
	// Params maps titles of the publication's columns to parameters of the run that must have the row's value, where a
	// subject has the parameter at all.
	Params map[string]string `json:"params,omitempty" yaml:"params"`
	// Column is the title of the column that names a row's subject, and Subjects maps its words to subjects of the run.
	Column   string              `json:"column" yaml:"column"`
	Subjects map[string][]string `json:"subjects" yaml:"subjects"`
}

// The metrics' names; each ends with its unit. A trial has those that apply to it.
const (
	RequestsPerSecond       = "requests_per_second"
	GigabitsPerSecond       = "gigabits_per_second"
	ConnectionsPerSecond    = "connections_per_second"
	TransactionsPerSecond   = "transactions_per_second"
	PacketsPerSecond        = "packets_per_second"
	Requests                = "requests"
	Failed                  = "failed"
	Retransmits             = "retransmits"
	TransferredGigabytes    = "transferred_gigabytes"
	LatencyMsMin            = "latency_ms_min"
	LatencyMsMean           = "latency_ms_mean"
	LatencyMsP50            = "latency_ms_p50"
	LatencyMsP90            = "latency_ms_p90"
	LatencyMsP99            = "latency_ms_p99"
	LatencyMsMax            = "latency_ms_max"
	DurationSeconds         = "duration_seconds"
	BalancerCPUUsPerRequest = "balancer_cpu_us_per_request"
	ClientCPUUsPerRequest   = "client_cpu_us_per_request"
	BackendCPUUsPerRequest  = "backend_cpu_us_per_request"
	SwitchCPUUsPerRequest   = "switch_cpu_us_per_request"
	// BalancerCPUMsPerGigabyte is the balancer's CPU time per 10^9 bytes that arrived.
	BalancerCPUMsPerGigabyte = "balancer_cpu_ms_per_gigabyte"
	// BalancerCPUCores and those below it are the CPU use of a part over the trial, in cores (1.0 is one core busy
	// throughout).
	BalancerCPUCores = "balancer_cpu_cores"
	ClientCPUCores   = "client_cpu_cores"
	BackendCPUCores  = "backend_cpu_cores"
	SwitchCPUCores   = "switch_cpu_cores"
	// BalancerHostCPUCores and BalancerHostCPUUsPerRequest are the CPU use of the balancer and the generators, where
	// these run on its host.
	BalancerHostCPUCores        = "balancer_host_cpu_cores"
	BalancerHostCPUUsPerRequest = "balancer_host_cpu_us_per_request"
	IdleCPUCores                = "idle_cpu_cores"
	// SettingsChanged is the number of settings of hosts that `jeoul tune` had to change.
	SettingsChanged     = "settings_changed"
	ListenDrops         = "listen_drops"
	ListenOverflows     = "listen_overflows"
	DeviceDrops         = "device_drops"
	ContextSwitchesPerS = "context_switches_per_second"
	NsPerPacket         = "ns_per_packet"
	NsNetOfEmpty        = "ns_net_of_empty"
	// NsEmpty is the time of the empty program under the same packets; only samples have it.
	NsEmpty      = "ns_empty"
	RatioToEmpty = "ratio_to_empty"
	// InstructionsPerRequest comes from a virtual machine whose clock counts instructions: all those for a request, by
	// clients, balancer, servers and kernel.
	InstructionsPerRequest = "instructions_per_request"
	// InstructionsPerPacket and the two below it come from such a machine, too: the instructions of a packet in the
	// data plane, and net of those of the empty program under the same packets. Only samples have InstructionsEmpty.
	InstructionsPerPacket  = "instructions_per_packet"
	InstructionsNetOfEmpty = "instructions_net_of_empty"
	InstructionsEmpty      = "instructions_empty"
)
