// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// advised are answers, as flags, that lead to each mode.
var advised = map[lb.Mode]string{
	lb.L2DSR:     "--speaks http --lifetime short --client-address packet --network segment --permits backends,bypass",
	lb.IPIP:      "--speaks http --lifetime short --client-address packet --network routed --permits tunnels,backends,bypass",
	lb.DSCP:      "--speaks http --lifetime short --client-address packet --network routed --permits backends,bypass",
	lb.NAT:       "--speaks http --lifetime short --client-address packet --network segment --permits backends",
	lb.FullNAT:   "--speaks http --lifetime short --client-address none --network routed --permits none",
	lb.ModeProxy: "--speaks http --lifetime long --client-address header --network routed --permits none",
}

// TestAdvisedConfigurationRuns serves requests with the advised configuration of each mode.
func TestAdvisedConfigurationRuns(t *testing.T) {
	testenv.Target(t, matrixTarget)
	testenv.Root(t)
	for mode := range advised {
		t.Run(string(mode), func(t *testing.T) {
			l := newLab(t, lab.Spec{Clients: 1, Servers: 3})
			s := &stage{Lab: l, balancer: newBalancer(t, l.Balancer), files: e2e.MakeFiles(t, l.Dir, kilo),
				webs: map[string]*e2e.Web{},
				dns:  map[string]*e2e.DNS{}, agents: map[string]*lab.Process{}}
			service := s.advise(t, mode)
			for _, server := range l.Servers {
				if err := server.Do(func() error { return s.routeReplies(server) }); err != nil {
					t.Fatal(err)
				}
				s.prepareAdvised(t, server, service)
				s.startServers(t, server)
			}
			s.start(t)
			browser, servers := e2e.NewBrowser(l.Clients[0]), map[string]bool{}
			to := netip.AddrPortFrom(service.VIP, service.Port)
			for range asks {
				seen, err := browser.Who(bounded(t), to)
				if err != nil {
					t.Fatal(err)
				}
				servers[seen.Server] = true
			}
			if _, err := browser.Download(bounded(t), to, s.files, kilo); err != nil {
				t.Error(err)
			}
			if len(servers) < 2 {
				t.Errorf("only %v answered", servers)
			}
		})
	}
}

// advise writes the command's advice for the laboratory as a configuration, with the balancer's own socket, and returns
// the service.
func (s *stage) advise(t *testing.T, mode lb.Mode) lb.Service {
	t.Helper()
	var backends []string
	for _, server := range s.Servers {
		backends = append(backends, server.IPv4.String())
	}
	dir, log := t.TempDir(), &cmdtest.SyncBuffer{}
	process := jeoul(t, s.host, log, append([]string{"advise", "--requests", "1000", "--size", "1024", "--failures",
		"0", "--to", dir,
		"--interface", s.host.Interface, "--vip", s.VIP4.String(), "--pool", "198.18.0.99", "--backend-address",
		strings.Join(backends, ",")},
		strings.Fields(advised[mode])...)...)
	if err := process.Wait(); err != nil {
		t.Fatalf("jeoul advise: %v\n%s", err, log)
	}
	text, err := os.ReadFile(filepath.Join(dir, "jeoul.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	whole := entry{}
	if err := yaml.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	whole["socket"] = s.socket
	if mode == lb.NAT {
		// All hosts of a laboratory are on one link, and clients would count as backends' neighbours.
		service, _ := whole["services"].([]any)[0].(entry)
		service["hairpin"] = false
	}
	if err := os.WriteFile(s.config, yamlOf(t, whole), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(s.config)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Services[0].Mode != mode {
		t.Fatalf("the advice is %s", cfg.Services[0].Mode)
	}
	return cfg.Services[0]
}

// prepareAdvised starts the agent that the mode requires on a backend.
func (s *stage) prepareAdvised(t *testing.T, server *lab.Host, service lb.Service) {
	t.Helper()
	if service.Mode.Translates() || service.Mode == lb.ModeProxy {
		return
	}
	words := []string{"agent", "--state-dir", filepath.Join(server.Dir, "state"), "--mode", string(service.Mode)}
	if service.Mode == lb.DSCP {
		words = append(words, "--dscp", fmt.Sprintf("%d=%s", service.DSCP, service.VIP))
	} else {
		words = append(words, "--vip", service.VIP.String())
	}
	log := &cmdtest.SyncBuffer{}
	process := jeoul(t, server, log, words...)
	testenv.Eventually(t, e2e.WaitLimit, "the agent of "+server.Name+" is ready", func() bool {
		select {
		case <-process.Done():
			t.Fatalf("the agent of %s ended: %v\n%s", server.Name, process.Wait(), log)
		default:
		}
		return strings.Contains(log.String(), "ready")
	})
}
