// SPDX-License-Identifier: Apache-2.0

package l2switch

//go:generate ../../../../scripts/bpf2go.sh labSwitch ../../../../bpf/lab/switch.bpf.c
//go:generate ../../../../scripts/bpf2go.sh labWire ../../../../bpf/lab/wire.bpf.c
