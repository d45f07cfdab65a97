// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// checkVRRP finds two balancers that are active at once, other groups with the same VRID, and neighbours that use the
// backup's MAC address for a VIP. It uses the status of Jeoul's balancer on this host.
func checkVRRP(before, after *ops.Status) (findings []Finding) {
	was, is := before.VRRP, after.VRRP
	if was == nil || is == nil {
		return nil
	}
	if was.Both && is.Both && is.Peer != nil {
		title := fmt.Sprintf("Two balancers hold the VIPs: %s is active beside this one", is.Peer.Address)
		findings = append(findings, finding(vrrpTwoActive, title, Figure{Name: "priority", On: is.Peer.Address.String(),
			Value: float64(is.Peer.Priority), Unit: fmt.Sprintf("of the peer's, and %d here", is.Priority)}))
	}
	var figures []Figure
	for _, f := range is.Foreign {
		figures = append(figures, Figure{Name: fmt.Sprintf("VRRP id %d", is.ID), On: f.Address.String(),
			Value: float64(len(f.VIPs)), Unit: "VIPs", Note: fmt.Sprint(f.VIPs)})
	}
	if len(figures) > 0 {
		findings = append(findings, finding(vrrpForeign, fmt.Sprintf(
			"Another group of balancers or routers has the VRRP id %d: %s", is.ID, figures[0].On), bounded(figures)...))
	}
	return append(findings, checkStrays(before, after)...)
}

// checkStrays finds VIPs whose packets arrive at a backup, because neighbours use its MAC address for them.
func checkStrays(before, after *ops.Status) []Finding {
	if is := after.VRRP; is.State != "backup" || !is.Since.Equal(before.VRRP.Since) {
		return nil
	}
	was := map[string]uint64{}
	for _, s := range before.Services {
		was[s.Name] = packetsOf(s)
	}
	var figures []Figure
	vip := ""
	for _, s := range after.Services {
		n := evidence.Growth(packetsOf(s), was[s.Name])
		if n < fewPackets {
			continue
		}
		figures = append(figures, Figure{
			Name: "packets for " + s.VIP.String(), On: s.Name, Value: float64(n), Unit: "packets"})
		if vip == "" {
			vip = s.VIP.String()
		}
	}
	title := fmt.Sprintf("Packets for the VIP %s come to this balancer, which is the backup", vip)
	if n := evidence.Growth(leftAsBackup(after), leftAsBackup(before)); n >= fewPackets {
		figures = append(figures, Figure{
			Name: "packets for VIPs, left to the kernel", Value: float64(n), Unit: "packets"})
		if vip == "" {
			title = "Packets for VIPs come to this balancer, which is the backup"
		}
	}
	if len(figures) == 0 {
		return nil
	}
	return []Finding{finding(vipAtBackup, title, bounded(figures)...)}
}

// leftAsBackup returns the number of packets for VIPs that were not balanced because another balancer holds the VIPs.
func leftAsBackup(status *ops.Status) (n uint64) {
	for _, o := range status.Outcomes {
		if o.Name == "passed_backup" {
			n = o.Packets
		}
	}
	return n
}

// packetsOf returns the number of packets sent to a service's backends.
func packetsOf(s ops.Service) (n uint64) {
	for _, b := range s.Backends {
		n += b.Packets
	}
	return n
}
