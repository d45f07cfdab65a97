// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const machinesSuite = `name: machines
title: The same on machines
lab: {clients: 2, servers: 2}
web: {file_bytes: 5120}
repeats: 1
subjects:
  - name: direct
  - name: routed
  - name: haproxy-http
    params: {threads: [1]}
  - name: iptables-nth
  - name: jeoul-l2dsr-tc
    params: {scheduler: [rr]}
loads:
  - {kind: ab, concurrency: [4], requests: 100}
  - {kind: wrk, concurrency: [4], duration: 1s}
  - {name: https, kind: ab, tls: true, concurrency: [4], requests: 40}
quick:
  subjects:
    - name: haproxy-tcp
      params: {threads: [1], splice: ["off"]}
    - name: nginx-stream
      params: {threads: [1]}
    - name: nftables
    - name: jeoul-dscp-xdp
      params: {scheduler: [rr]}
    - name: jeoul-nat-xdp
      params: {scheduler: [maglev]}
    - name: jeoul-fullnat-tc
      params: {scheduler: [maglev]}
    - name: bare
  loads:
    - {kind: iperf3, concurrency: [2], duration: 1s}
`

// sshLab is a lab whose hosts are reached by SSH, and a host outside of the measured part, which runs the bench.
type sshLab struct {
	lab *lab.Lab
	ssh *e2e.SSH
	dir string
}

func newSSHLab(t *testing.T, clients, servers int) *sshLab {
	t.Helper()
	testenv.Root(t)
	for _, program := range []string{"nginx", "haproxy", "ab", "wrk", "iperf3", "iptables-nft", "nft"} {
		testenv.Program(t, program)
	}
	l, err := lab.New(t.Context(), lab.Spec{Clients: clients, Servers: servers, Attacker: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &sshLab{lab: l, ssh: e2e.NewSSH(t), dir: t.TempDir()}
	s.ssh.Start(t, append(append([]*lab.Host{l.Balancer}, l.Clients...), l.Servers...)...)
	return s
}

// bench runs `jeoul bench run` on that host, and returns its output.
func (s *sshLab) bench(ctx context.Context, t *testing.T, args ...string) (string, error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	p, err := s.lab.Attacker.Start(ctx, lab.Command{Path: program, Args: append([]string{"bench", "run"}, args...),
		Env: append(os.Environ(), actAsJeoul+"=1"), Stdout: &output, Stderr: &output})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Wait()
	return output.String(), err
}

// suite writes the suite of machines, and returns its path.
func (s *sshLab) suite(t *testing.T) string { return s.write(t, machinesSuite) }

// write writes a suite, and returns its path.
func (s *sshLab) write(t *testing.T, suite string) string {
	t.Helper()
	path := filepath.Join(s.dir, "suite.yaml")
	if err := os.WriteFile(path, []byte(suite), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// points returns the points that a run measured, each with whether its trial is valid, without the figures.
func points(t *testing.T, dir string) map[string]bool {
	t.Helper()
	run, err := results.Load(filepath.Join(dir, bench.ResultsFile))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, trial := range run.Trials {
		all[fmt.Sprintf("%s %s %v %d", trial.Subject, trial.Load, trial.Params, trial.Repeat)] = trial.Valid
		if !trial.Valid {
			t.Logf("%s, %s: %q", trial.Subject, trial.Load, trial.Notes)
			continue
		}
		for _, name := range []string{results.RequestsPerSecond, results.ConnectionsPerSecond,
			results.TransactionsPerSecond, results.QueriesPerSecond,
			results.GigabitsPerSecond, results.ClientCPUCores, results.LatencyMsMean, results.NameServerCPUPercent} {
			if value, there := trial.Metrics[name]; there && value <= 0 {
				t.Errorf("%s, %s: %s is %g", trial.Subject, trial.Load, name, value)
			}
		}
		var asked uint64
		for _, backend := range trial.Backends {
			asked += backend.Connections + backend.Queries
		}
		if asked == 0 || len(trial.Backends) != 2 {
			t.Errorf("%s, %s: %d connections or queries to %d backends", trial.Subject, trial.Load, asked,
				len(trial.Backends))
		}
	}
	return all
}

// expectNothingLeft checks that the machines are in their original state.
func (s *sshLab) expectNothingLeft(t *testing.T) {
	t.Helper()
	if left, _ := filepath.Glob("/var/tmp/jeoul-worker-*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for _, host := range append(append([]*lab.Host{s.lab.Balancer}, s.lab.Clients...), s.lab.Servers...) {
		for command, unwanted := range map[string]string{
			"ip -4 addr":                          s.lab.VIP4.String() + "/32",
			"ip route":                            "proto 219",
			"iptables-nft-save -t nat":            s.lab.VIP4.String(),
			"sysctl net.ipv4.conf.all.arp_ignore": "= 1",
			"nft list tables":                     "jeoul",
		} {
			var output bytes.Buffer
			p, err := host.Start(t.Context(), lab.Command{Path: "/bin/sh", Args: []string{"-c", command + " 2>&1"},
				Stdout: &output})
			if err != nil {
				t.Fatal(err)
			}
			if _ = p.Wait(); strings.Contains(output.String(), unwanted) {
				t.Errorf("%s: %s says\n%s", host.Name, command, output.String())
			}
		}
	}
}

func TestMachinesGiveTheSameTable(t *testing.T) {
	testenv.Target(t, "test-machines")
	s := newSSHLab(t, 2, 2)
	suite, inventory := s.suite(t), s.ssh.Inventory(t, s.lab, "")
	far, near := filepath.Join(s.dir, "far"), filepath.Join(s.dir, "near")
	keys := watchKeys(t)
	for _, form := range []string{"--quick=false", "--quick"} {
		if output, err := s.bench(t.Context(), t, suite, form, "--inventory", inventory, "--to", far+form); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		s.expectNothingLeft(t)
	}
	for path, mode := range keys() {
		if mode != 0o600 {
			t.Errorf("%s was %v", path, mode)
		}
	}
	if output, err := s.bench(t.Context(), t, suite, "--to", near); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if diff := cmp.Diff(points(t, near), points(t, far+"--quick=false")); diff != "" {
		t.Errorf("the table of machines differs (-namespaces +machines):\n%s", diff)
	}
	for point, valid := range points(t, far+"--quick") {
		if strings.HasPrefix(point, "bare") == valid {
			t.Errorf("%s: valid %v", point, valid)
		}
	}
}

// expectRefused runs a suite with an inventory, and checks that it is refused with all the words.
func (s *sshLab) expectRefused(t *testing.T, inventory string, words ...string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	output, err := s.bench(t.Context(), t, s.write(t, programsSuite), "--inventory", inventory, "--to", out)
	if err == nil {
		t.Errorf("it is not refused: %s", output)
	}
	for _, want := range words {
		if !strings.Contains(output, want) {
			t.Errorf("it does not say %q: %s", want, output)
		}
	}
	s.expectNothingLeft(t)
}

// rewrite changes an inventory.
func rewrite(t *testing.T, path, old, with string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte(old), []byte(with)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMachinesThatCannotBeHadAreNamed(t *testing.T) {
	testenv.Target(t, "test-machines")
	s := newSSHLab(t, 1, 2)
	inventory := func() string { return s.ssh.Inventory(t, s.lab, "") }
	// Line 2 is the client, 4 the balancer, 6 and 7 are the servers.
	s.expectRefused(t, rewrite(t, inventory(), s.ssh.Key(), s.ssh.WrongKey()),
		"hosts.ini:2: client01: SSH does not get there", "Permission denied (publickey); give the right ansible_user",
		"hosts.ini:7: web02")
	s.expectRefused(t, rewrite(t, inventory(), "web02 ansible_host=198.18.2.2",
		"web02 ansible_host=198.18.2.2 ansible_port=2222"),
		"hosts.ini:7: web02: SSH does not get there", "Connection refused; does sshd run there")
	s.expectRefused(t, rewrite(t, inventory(), "web02 ansible_host=198.18.2.2",
		"web02 ansible_host=198.18.2.2 jeoul_interface=lan0"),
		"hosts.ini:7: web02: the machine cannot be used: no interface lan0")
	s.expectRefused(t, rewrite(t, inventory(), "jeoul_vip=198.18.0.100", "jeoul_vip=192.0.2.1"),
		"jeoul_vip: 192.0.2.1 is not of the machines' segment 198.18.0.0/16")
	for host, lacks := range map[*lab.Host][]string{s.lab.Clients[0]: {"dnsperf"},
		s.lab.Servers[1]: {"iperf3", "named"}} {
		for _, program := range lacks {
			if output, err := ssh(s, host, "mount --bind /dev/null "+testenv.Program(t, program)); err != nil {
				t.Fatalf("%v: %s", err, output)
			}
		}
	}
	s.expectRefused(t, inventory(), "hosts.ini:2: client01: dnsperf is not installed there",
		"hosts.ini:7: web02: iperf3 is not installed there",
		"hosts.ini:7: web02: named is not installed there", "prepare the machines: ansible-playbook")
}

// ssh runs a command in a host's own mounts, like a session there.
func ssh(s *sshLab, host *lab.Host, command string) (string, error) {
	var output bytes.Buffer
	p, err := host.Start(context.Background(), lab.Command{Path: "/bin/sh", Args: []string{"-c", command},
		Stdout: &output, Stderr: &output})
	if err != nil {
		return "", err
	}
	err = p.Wait()
	return output.String(), err
}

func TestMachinesAreLeftCleanWhenTheBenchIsKilled(t *testing.T) {
	testenv.Target(t, "test-machines")
	t.Parallel()
	s := newSSHLab(t, 1, 2)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	p, err := s.lab.Attacker.Start(t.Context(), lab.Command{Path: program,
		Args: []string{"bench", "run", s.suite(t), "--only", "iptables-nth", "--inventory",
			s.ssh.Inventory(t, s.lab, ""), "--to", filepath.Join(s.dir, "out")},
		Env: append(os.Environ(), actAsJeoul+"=1"), Stdout: &output, Stderr: &output})
	if err != nil {
		t.Fatal(err)
	}
	// While rules and routes are set.
	testenv.Eventually(t, e2e.WaitLimit, "the rules are set", func() bool {
		rules, _ := ssh(s, s.lab.Balancer, "iptables-nft-save -t nat")
		return strings.Contains(rules, s.lab.VIP4.String())
	})
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	testenv.Eventually(t, e2e.WaitLimit, "the workers have ended", func() bool {
		left, _ := filepath.Glob("/var/tmp/jeoul-worker-*")
		return len(left) == 0
	})
	s.expectNothingLeft(t)
}

func TestAnsiblePlaybookIsRight(t *testing.T) {
	t.Parallel()
	playbook := testenv.Program(t, "ansible-playbook")
	inventory := filepath.Join(t.TempDir(), "hosts.ini")
	text := "[clients]\na\n[balancers]\nb\n[servers]\nc\n[all:vars]\njeoul_vip=192.0.2.1\njeoul_interface=eth0\n"
	if err := os.WriteFile(inventory, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(playbook, "--syntax-check", "-i", inventory, "../../deploy/ansible/site.yml")
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "ANSIBLE_LOCAL_TEMP="+t.TempDir())
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}
