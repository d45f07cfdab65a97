// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// withPeers is a desired state with these VIPs and peers, in whose place nothing listens.
func withPeers(vips []string, peers ...lb.BGPPeer) bgp.Desired {
	w := bgp.Desired{BGP: lb.BGP{ASN: 64512, RouterID: netip.MustParseAddr("192.0.2.10"), Peers: peers}}
	for _, vip := range vips {
		w.VIPs = append(w.VIPs, netip.MustParseAddr(vip))
	}
	return w
}

func peerWithPassword(address, file string) lb.BGPPeer {
	return lb.BGPPeer{Address: netip.MustParseAddr(address), ASN: 64513, Port: 9, HoldTime: 9 * time.Second,
		PasswordFile: file}
}

func expectState(t *testing.T, s *Speaker, when string, vips, peers []string) {
	t.Helper()
	state := s.State()
	var hasVIPs, hasPeers []string
	for _, vip := range state.VIPs {
		hasVIPs = append(hasVIPs, vip.String())
	}
	for _, p := range state.Peers {
		hasPeers = append(hasPeers, p.Address)
	}
	if !slices.Equal(hasVIPs, vips) || !slices.Equal(hasPeers, peers) {
		t.Errorf("%s, it announces %q to %q, want %q to %q", when, hasVIPs, hasPeers, vips, peers)
	}
}

// TestUnreadablePassword: a password that cannot be read is an error, and prevents nothing but the session that needs
// it: VIPs are withdrawn, the peer stays as it was, and other peers get their sessions.
func TestUnreadablePassword(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, second := peerWithPassword("127.0.0.2", secret), peerWithPassword("127.0.0.3", "")
	s := New(slog.New(slog.DiscardHandler), false, filepath.Join(dir, "routes"))
	t.Cleanup(func() { s.Shutdown(bgp.Stop) })
	if err := s.Apply(withPeers([]string{vip4, vip6}, first)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(withPeers([]string{vip6}, first, second)); err == nil || !strings.Contains(err.Error(), secret) {
		t.Errorf("without the file, the error is %v", err)
	}
	expectState(t, s, "without the file", []string{vip6}, []string{"127.0.0.2", "127.0.0.3"})
	if p := s.peers["127.0.0.2"]; p.Password != "sesame" {
		t.Errorf("without the file, the peer is %+v", p)
	}

	other := New(slog.New(slog.DiscardHandler), false, filepath.Join(dir, "routes"))
	t.Cleanup(func() { other.Shutdown(bgp.Stop) })
	if err := other.Apply(withPeers([]string{vip4}, first, second)); err == nil {
		t.Error("a new speaker has read the password")
	}
	expectState(t, other, "a new speaker", []string{vip4}, []string{"127.0.0.3"})
	if err := os.WriteFile(secret, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := other.Apply(withPeers([]string{vip4}, first, second)); err != nil {
		t.Error(err)
	}
	expectState(t, other, "with the file", []string{vip4}, []string{"127.0.0.2", "127.0.0.3"})
}
