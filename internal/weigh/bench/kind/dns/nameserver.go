// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"text/template"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The question and the server, as in the DNS experiment of 2016.
const (
	nameServerProgram = "named"
	Port              = 53
	dnsName           = "a.domain.local"
	// dnsQuestion is a line of dnsperf's input.
	dnsQuestion = dnsName + " A"
)

// dnsAnswer is the only address of the zone; no host has it.
var dnsAnswer = netip.MustParseAddr("198.18.0.53")

// nameZone is the zone. Queries ask for its record a.
var nameZone = fmt.Sprintf("$TTL 60\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A %s\na A %[1]s\n", dnsAnswer)

//go:embed named.conf.tmpl
var namedTemplate string

var namedConfig = template.Must(template.New("named.conf").Parse(namedTemplate))

// NameServer is BIND on a server.
type NameServer struct {
	host    *lab.Host
	Process *lab.Process
	dir     string
}

// startNameServers starts a name server on every server and waits until all answer. They are stopped with the
// laboratory. named notices by itself which addresses, such as the VIP, a server gets and loses later
// (automatic-interface-scan).
func startNameServers(ctx context.Context, l *lab.Lab) ([]*NameServer, error) {
	servers := make([]*NameServer, len(l.Servers))
	threads := nameServerThreads(l.Remote(), runtime.NumCPU(), len(l.Servers))
	err := lab.Each(l.Servers, func(host *lab.Host) error {
		s := &NameServer{host: host, dir: filepath.Join(host.Dir, "dns")}
		servers[slices.Index(l.Servers, host)] = s
		if err := s.start(ctx, l.VIP4, threads); err != nil {
			return fmt.Errorf("starting %s on %s: %w", nameServerProgram, host.Name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range servers {
		group.Go(func() error { return s.WaitFor(ctx, s.host, netip.AddrPortFrom(s.host.IPv4, Port)) })
	}
	return servers, group.Wait()
}

// copyNamedTask copies a host's name server program into a directory of the host: Debian's AppArmor profile lets the
// program at its own path use only its own directories.
var copyNamedTask = lab.NewTask("copy-named", func(_ context.Context, _ *lab.Host, dir string) (string, error) {
	path, err := exec.LookPath(nameServerProgram)
	if err != nil {
		return "", err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("copying %s: %w", nameServerProgram, err)
	}
	copied := filepath.Join(dir, nameServerProgram)
	// No process may be forked while the file is being written. Until the child executes its program, it holds this
	// file open for writing, and the kernel refuses to execute such a file (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(copied, program, 0o755); err != nil {
		return "", fmt.Errorf("copying %s: %w", nameServerProgram, err)
	}
	return copied, nil
})

// start starts the server in a directory of its own, with the given number of threads (see nameServerThreads). It
// listens at the host's address in the laboratory, and at the VIP while the host has it.
func (s *NameServer) start(ctx context.Context, vip netip.Addr, threads int) error {
	var text bytes.Buffer
	values := map[string]any{"Dir": s.dir, "Port": Port, "Addresses": []netip.Addr{s.host.IPv4, vip}}
	if err := namedConfig.Execute(&text, values); err != nil {
		return err
	}
	config := filepath.Join(s.dir, "named.conf")
	err := errors.Join(
		s.host.WriteFile(config, text.Bytes()),
		s.host.WriteFile(filepath.Join(s.dir, "zone"), []byte(nameZone)))
	if err != nil {
		return err
	}
	program, err := copyNamedTask.On(ctx, s.host, s.dir)
	if err != nil {
		return err
	}
	// -f: in the foreground.
	args := []string{"-f", "-c", config}
	if threads > 0 {
		args = append(args, "-n", strconv.Itoa(threads))
	}
	s.Process, err = s.host.Start(context.WithoutCancel(ctx), lab.Command{Path: program, Args: args})
	return err
}

// nameServerThreads returns the number of worker threads of each name server; 0 means as many as its machine has cores,
// BIND's default. Servers that share a machine share its cores: if each had a thread for every core, the threads would
// mostly take turns.
func nameServerThreads(far bool, cores, servers int) int {
	if far {
		return 0
	}
	return max(cores/servers, 1)
}

// nameServerThreadsNote describes the number of threads of each name server of a form.
func nameServerThreadsNote(f bench.Form) string {
	threads := nameServerThreads(f.Remote, runtime.NumCPU(), f.Lab.Servers)
	if threads == 0 {
		return "each has as many threads as its machine has cores"
	}
	return fmt.Sprintf("each has its share of the machine's cores for threads (-n %d)", threads)
}

// nameServerTimeout is how long a name server may take until it answers at an address.
const nameServerTimeout = 20 * time.Second

// WaitFor polls until the server answers for its zone at an address.
func (s *NameServer) WaitFor(ctx context.Context, from *lab.Host, at netip.AddrPort) error {
	err := bench.Poll(ctx, nameServerTimeout, func() error {
		if err := s.running(); err != nil {
			return bench.GiveUp(err)
		}
		return askName(ctx, from, at)
	})
	if err != nil && !bench.GivesUp(err) && ctx.Err() == nil {
		return fmt.Errorf("%s: %w%s", s.host.Name, err, s.log())
	}
	return err
}

// running returns nil while the server runs.
func (s *NameServer) running() error {
	select {
	case <-s.Process.Done():
		return fmt.Errorf("the name server on %s has ended: %w%s", s.host.Name,
			cmp.Or(s.Process.Wait(), errors.New("by itself")), s.log())
	default:
		return nil
	}
}

// log returns the end of the server's log, after a semicolon.
func (s *NameServer) log() string { return bench.LogTail(s.host, filepath.Join(s.dir, "named.log")) }

// askNameTimeout is how long an answer may take.
const askNameTimeout = 200 * time.Millisecond

// askName queries the record from a host of the laboratory, and checks the answer.
func askName(ctx context.Context, from *lab.Host, at netip.AddrPort) error {
	_, err := askNameTask.On(ctx, from, at)
	return err
}

var askNameTask = lab.NewTask("ask-name", func(_ context.Context, from *lab.Host, at netip.AddrPort) (struct{}, error) {
	return struct{}{}, askNameFrom(from, at)
})

func askNameFrom(from *lab.Host, at netip.AddrPort) error {
	var conn net.Conn
	err := from.Do(func() (err error) {
		conn, err = net.Dial("udp4", at.String())
		return err
	})
	if err != nil {
		return bench.GiveUp(err)
	}
	defer conn.Close()
	client := dns.Client{Timeout: askNameTimeout}
	answer, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion(dns.Fqdn(dnsName), dns.TypeA),
		&dns.Conn{Conn: conn})
	if err != nil {
		return fmt.Errorf("%s asking %s: %w", from.Name, at, err)
	}
	if answer.Rcode != dns.RcodeSuccess || len(answer.Answer) != 1 {
		return fmt.Errorf("%s asking %s: the answer is not the zone's: %s with %d records",
			from.Name, at, dns.RcodeToString[answer.Rcode], len(answer.Answer))
	}
	if a, ok := answer.Answer[0].(*dns.A); !ok || !a.A.Equal(dnsAnswer.AsSlice()) {
		return fmt.Errorf("%s asking %s: the answer is not the zone's: %v", from.Name, at, answer.Answer[0])
	}
	return nil
}
