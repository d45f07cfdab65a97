// SPDX-License-Identifier: Apache-2.0

package wire

//go:generate go tool bpf2go -tags linux -target bpfel -go-package wire -no-global-types -type wire_connection -type wire_settings -type wire_port -type wire_control -type wire_progress -type wire_shared -type wire_counts -type wire_count -type wire_histogram -type wire_state -type wire_kind -type wire_action -type wire_latency bpf ../../bpf/wire.bpf.c -- -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
