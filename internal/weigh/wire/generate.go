// SPDX-License-Identifier: Apache-2.0

package wire

//go:generate ../../../scripts/bpf2go.sh -no-global-types -type wire_connection -type wire_settings -type wire_port -type wire_control -type wire_progress -type wire_shared -type wire_counts -type wire_count -type wire_histogram -type wire_state -type wire_kind -type wire_action -type wire_latency bpf ../../../bpf/wire/wire.bpf.c
