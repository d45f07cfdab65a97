// SPDX-License-Identifier: Apache-2.0

package flood

//go:generate ../../../scripts/bpf2go.sh -type counted flood ../../../bpf/lab/flood.bpf.c
