// SPDX-License-Identifier: Apache-2.0

package traced

// The traced programs are the sources of the plain ones, compiled with TRACED: see bpf/balancer/trace.h.
//
//go:generate ../../../../scripts/bpf2go.sh -cflags -DTRACED -no-global-types -type trace_record -type trace_reason -type capture_filter -type capture_slots -type capture_gate -type capture_state -type capture_limit Xdp ../../../../bpf/balancer/jeoul_xdp.bpf.c
//go:generate ../../../../scripts/bpf2go.sh -cflags -DTRACED -no-global-types Tc ../../../../bpf/balancer/jeoul_tc.bpf.c
