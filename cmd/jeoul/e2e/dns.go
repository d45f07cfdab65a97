// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/miekg/dns"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The zone of the test, and the kinds of names in it: any name below one of
// these exists.
const (
	dnsZone = "lab.test."
	// Small is answered in one packet, Large in fragments.
	Small Answer = "small"
	Large Answer = "large"
)

// Answer is a kind of answer.
type Answer string

// maxUDPSize is the client's UDP payload size of EDNS, in bytes of a DNS message (RFC 6891).
const maxUDPSize = 4096

// A client repeats a query without an answer, and finally gives up.
const (
	retryAfter = time.Second
	askTimeout = 6 * time.Second
)

// texts are the strings of the answers. A string holds up to 255 bytes.
var texts = map[Answer][]string{Small: {"a small answer"}, Large: noise(12, 240)}

// noise returns strings that differ from each other.
func noise(strings, length int) (all []string) {
	source := rand.NewChaCha8([32]byte{})
	for range strings {
		b := make([]byte, length/2)
		source.Read(b)
		all = append(all, hex.EncodeToString(b))
	}
	return all
}

//go:embed named.conf.tmpl
var namedText string

var namedTemplate = template.Must(template.New("named.conf").Parse(namedText))

// DNS is BIND's named on a host.
type DNS struct {
	Process *lab.Process
	host    *lab.Host
	dir     string
	ports   []uint16
	// serial is the zone's serial (RFC 1035 section 3.3.13).
	serial uint32
}

// StartDNS starts named on a host, on ports of all addresses that the host has at that time, and waits until it
// answers. It ends with the laboratory.
func StartDNS(tb testing.TB, host *lab.Host, ports ...uint16) *DNS {
	tb.Helper()
	d := &DNS{host: host, dir: filepath.Join(host.Dir, "dns"), ports: ports, serial: 1}
	if err := d.prepare(testenv.Program(tb, "named")); err != nil {
		tb.Fatalf("prepare named: %v", err)
	}
	d.Start(tb)
	return d
}

// prepare makes named's directory.
func (d *DNS) prepare(program string) error {
	var text bytes.Buffer
	err := namedTemplate.Execute(&text, map[string]any{"Name": d.host.Name, "Dir": d.dir, "Zone": dnsZone,
		"Ports": d.ports})
	if err != nil {
		return err
	}
	binary, err := os.ReadFile(program)
	return errors.Join(err,
		os.Mkdir(d.dir, 0o755),
		// A copy: Debian's AppArmor profile keeps the program at its own path to
		// its own directories.
		os.WriteFile(filepath.Join(d.dir, "named"), binary, 0o755),
		os.WriteFile(filepath.Join(d.dir, "named.conf"), text.Bytes(), 0o644),
		os.WriteFile(d.zoneFile(), []byte(d.zone("")), 0o644))
}

// Start starts a stopped named again, and waits until it answers.
func (d *DNS) Start(tb testing.TB) {
	tb.Helper()
	var err error
	d.Process, err = d.host.Start(context.WithoutCancel(tb.Context()), lab.Command{
		Path: filepath.Join(d.dir, "named"), Args: []string{"-f", "-n", "1", "-c", filepath.Join(d.dir, "named.conf")}})
	if err != nil {
		tb.Fatal(err)
	}
	testenv.Eventually(tb, WaitLimit, "named answers on "+d.host.Name, func() bool {
		asked, err := NewAsker(d.host, netip.AddrPortFrom(d.host.IPv6, d.ports[len(d.ports)-1]))
		if err != nil {
			return false
		}
		defer asked.Close()
		_, err = asked.once(NewQuery(Small, 0), Small, 50*time.Millisecond)
		return err == nil
	})
}

// loggedQuery is a line of named's log: the client, the name, and the server's address.
var loggedQuery = regexp.MustCompile(`client @\S+ (\S+)#(\d+) \((\S+)\): query: .* \((\S+)\)`)

// Seen returns the endpoints of a query, from named's log.
func (d *DNS) Seen(query *dns.Msg) (Seen, error) {
	log, err := os.ReadFile(filepath.Join(d.dir, "queries.log"))
	if err != nil {
		return Seen{}, err
	}
	name := strings.TrimSuffix(query.Question[0].Name, ".")
	for line := range strings.Lines(string(log)) {
		match := loggedQuery.FindStringSubmatch(line)
		if match == nil || match[3] != name {
			continue
		}
		seen := Seen{Server: d.host.Name}
		local, err := netip.ParseAddr(match[4])
		if err != nil {
			return seen, err
		}
		seen.Local = netip.AddrPortFrom(local, 0)
		seen.Client, err = endpoint(match[1], match[2])
		return seen, err
	}
	return Seen{}, fmt.Errorf("the log of %s has no query for %s", d.host.Name, name)
}

// queries numbers the queries of this process.
var queries atomic.Uint64

// NewQuery returns a query for a name that no earlier query has asked for, with a number of bytes of padding (RFC
// 7830).
func NewQuery(kind Answer, padding int) *dns.Msg {
	query := new(dns.Msg).SetQuestion(fmt.Sprintf("q%d.%s.%s", queries.Add(1), kind, dnsZone), dns.TypeTXT)
	query.SetEdns0(maxUDPSize, false)
	options := &query.IsEdns0().Option
	*options = append(*options, &dns.EDNS0_NSID{Code: dns.EDNS0NSID})
	if padding > 0 {
		*options = append(*options, &dns.EDNS0_PADDING{Padding: make([]byte, padding)})
	}
	return query
}

// Asker asks a DNS server over UDP, from one socket.
type Asker struct{ dns.Conn }

// NewAsker opens a socket inside of where. If from is given, it sends from the first of these addresses that has the
// server's family.
func NewAsker(where Inside, to netip.AddrPort, from ...netip.Addr) (*Asker, error) {
	a := &Asker{dns.Conn{UDPSize: maxUDPSize}}
	var local *net.UDPAddr
	for _, own := range from {
		if own.Is4() == to.Addr().Is4() {
			local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(own, 0))
			break
		}
	}
	err := where.Do(func() (err error) {
		a.Conn.Conn, err = net.DialUDP("udp", local, net.UDPAddrFromAddrPort(to))
		return err
	})
	return a, err
}

// Ask sends a query until it is answered, and returns the name of the server that answered. A wrong answer is an error,
// and so is an ICMP error about the query, unless it says that the query was too big: the kernel then makes smaller
// fragments.
func (a *Asker) Ask(query *dns.Msg, kind Answer) (server string, err error) {
	for deadline := time.Now().Add(askTimeout); ; {
		server, err = a.once(query, kind, retryAfter)
		again := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.EMSGSIZE)
		if !again || time.Now().After(deadline) {
			return server, err
		}
	}
}

// once sends a query and waits for the answer.
func (a *Asker) once(query *dns.Msg, kind Answer, bound time.Duration) (server string, err error) {
	if err := a.SetDeadline(time.Now().Add(bound)); err != nil {
		return "", err
	}
	if err := a.WriteMsg(query); err != nil {
		return "", err
	}
	for {
		answer, err := a.ReadMsg()
		if err != nil {
			return "", fmt.Errorf("ask %s for %s: %w", a.RemoteAddr(), query.Question[0].Name, err)
		}
		// An answer to an earlier attempt, or to an earlier query, does not count.
		if answer.Id == query.Id {
			return check(answer, kind)
		}
	}
}

// check returns the server that answered, or an error where the answer is wrong.
func check(answer *dns.Msg, kind Answer) (server string, err error) {
	if answer.Rcode != dns.RcodeSuccess || answer.Truncated || len(answer.Answer) != 1 {
		return "", fmt.Errorf("the answer is not the zone's: %v", answer)
	}
	text, ok := answer.Answer[0].(*dns.TXT)
	if !ok || strings.Join(text.Txt, "\n") != strings.Join(texts[kind], "\n") {
		return "", fmt.Errorf("the answer is not the zone's: %v", answer)
	}
	if edns := answer.IsEdns0(); edns != nil {
		for _, option := range edns.Option {
			if id, ok := option.(*dns.EDNS0_NSID); ok {
				name, err := hex.DecodeString(id.Nsid)
				return string(name), err
			}
		}
	}
	return "", errors.New("the answer does not say whose it is")
}
