// SPDX-License-Identifier: Apache-2.0

package direct

//go:generate ../../../../../scripts/bpf2go.sh wireBare ../../../../../bpf/bench/bare_wire.bpf.c
//go:generate ../../../../../scripts/bpf2go.sh bareTC ../../../../../bpf/bench/bare_tc.bpf.c
