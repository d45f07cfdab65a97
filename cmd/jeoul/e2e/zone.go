// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

func (d *DNS) zoneFile() string { return filepath.Join(d.dir, "zone") }

// quotes removes the brackets that %q writes around a list.
var quotes = strings.NewReplacer("[", "", "]", "")

// zone returns the text of the zone's file with these records besides those that all tests have. A negative answer is
// cached for a second.
func (d *DNS) zone(records string) string {
	text := fmt.Sprintf("$TTL 60\n@ SOA ns hostmaster %d 3600 600 86400 1\n@ NS ns\nns A 198.18.0.53\n", d.serial)
	for kind, strings := range texts {
		text += quotes.Replace(fmt.Sprintf("*.%s TXT ( %q )\n", kind, strings))
	}
	return text + records
}

// ReplaceFile writes a text into another file and renames it, so that a reader gets either the previous text or this
// one.
func ReplaceFile(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		tb.Fatal(err)
	}
}

// SetRecords replaces the zone's records, and returns when named answers with the new ones. named ignores a file that
// is older than the last load, by the kernel's file times, and a SIGHUP that comes during a reload: so SetRecords sends
// it again until named has the zone's serial.
func (d *DNS) SetRecords(tb testing.TB, records string) {
	tb.Helper()
	d.serial++
	ReplaceFile(tb, d.zoneFile(), d.zone(records))
	what := fmt.Sprintf("named on %s has serial %d of %s", d.host.Name, d.serial, dnsZone)
	testenv.Eventually(tb, WaitLimit, what, func() bool {
		now := time.Now()
		if err := os.Chtimes(d.zoneFile(), now, now); err != nil {
			tb.Fatal(err)
		}
		if err := d.Process.Signal(syscall.SIGHUP); err != nil {
			tb.Fatal(err)
		}
		return d.servesSerial(now.Add(100 * time.Millisecond))
	})
}

// servesSerial waits until a deadline for named to answer with the zone's serial.
func (d *DNS) servesSerial(until time.Time) bool {
	asked, err := NewAsker(d.host, netip.AddrPortFrom(d.host.IPv6, d.ports[len(d.ports)-1]))
	if err != nil {
		return false
	}
	defer asked.Close()
	for time.Now().Before(until) {
		asked.SetDeadline(until)
		query := new(dns.Msg).SetQuestion(dnsZone, dns.TypeSOA)
		if asked.WriteMsg(query) != nil {
			return false
		}
		answer, err := asked.ReadMsg()
		if err != nil {
			return false
		}
		if len(answer.Answer) == 1 {
			if soa, ok := answer.Answer[0].(*dns.SOA); ok && soa.Serial == d.serial {
				return true
			}
		}
		<-time.After(time.Millisecond)
	}
	return false
}
