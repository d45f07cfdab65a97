// SPDX-License-Identifier: Apache-2.0

package harness

//go:generate ../../../../scripts/bpf2go.sh xdp ../../../../bpf/bench/harness_xdp.bpf.c
//go:generate ../../../../scripts/bpf2go.sh -no-global-types tc ../../../../bpf/bench/harness_tc.bpf.c
