// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jeoul/jeoul/internal/host/journal"
	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

var equal = cmp.Options{cmp.AllowUnexported(contents{}), cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()}

func example() contents {
	return contents{
		identity{Format: journalFormat, Version: journalVersion, Place: journal.Place{Boot: "b", Namespace: 1,
			Cookie: 2}, Name: "agent", PID: 3},
		[]change{
			{Kind: kindSysctl, Sysctl: "net.ipv4.conf.all.arp_ignore", Old: "0", New: "1"},
			{Kind: kindAddress, Link: "lo", Index: 1, Address: netip.MustParseAddr("198.18.0.100")},
			{Kind: kindAddress, Link: "lo", Index: 1, Address: netip.MustParseAddr("2001:2::100")},
		},
	}
}

func encoded(tb testing.TB, c contents) string {
	tb.Helper()
	data, err := encodeJournal(c)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

func TestJournalRoundTrip(t *testing.T) {
	got, err := decodeJournal([]byte(encoded(t, example())))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(example(), got, equal); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// damaged returns journals that must not be acted on.
func damaged(tb testing.TB) map[string]string {
	good := encoded(tb, example())
	change := func(old, new string) string {
		if !strings.Contains(good, old) {
			tb.Fatalf("the example has no %s", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	return map[string]string{
		"empty":              "",
		"torn":               good[:len(good)/2],
		"garbage":            "\x00\xff\x00",
		"other JSON":         `{"version": 1}`,
		"two values":         good + good,
		"newer version":      change(`"version": 1`, `"version": 2`),
		"unknown key":        change(`"pid"`, `"ppid"`),
		"unknown change":     change(`"kind": "sysctl"`, `"kind": "route"`),
		"other tree":         change("net.ipv4.conf.all.arp_ignore", "kernel.core_pattern"),
		"way out":            change("net.ipv4.conf.all.arp_ignore", "net/../kernel/core_pattern"),
		"no link":            change(`"index": 1`, `"index": 0`),
		"no address":         change("198.18.0.100", ""),
		"address with zone":  change("2001:2::100", "fe80::1%eth0"),
		"address is no such": change("198.18.0.100", "198.18.0.256"),
	}
}

func TestDamagedJournal(t *testing.T) {
	for name, text := range damaged(t) {
		if got, err := decodeJournal([]byte(text)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func FuzzDecodeJournal(f *testing.F) {
	f.Add([]byte(encoded(f, example())))
	for _, text := range damaged(f) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeJournal(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("not ErrCorrupt: %v", err)
			}
			return
		}
		for _, ch := range c.Changes {
			if ch.Kind != kindSysctl {
				continue
			}
			if err := checkName(ch.Sysctl); err != nil {
				t.Fatal(err)
			}
			path, err := sysctl.Tree{}.Path(ch.Sysctl)
			if err != nil || filepath.Clean(path) != path || !strings.HasPrefix(path, "/proc/sys/net/") {
				t.Fatalf("sysctl %q leads to %q, %v", ch.Sysctl, path, err)
			}
		}
		again, err := decodeJournal([]byte(encoded(t, c)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, again, equal); diff != "" {
			t.Fatalf("changed by a round trip:\n%s", diff)
		}
	})
}

// TestOpenForeignJournal: the changes of a journal are undone only if it is of this boot and this network namespace. A
// damaged journal makes Open fail and stays unchanged.
func TestOpenForeignJournal(t *testing.T) {
	ns := testenv.Namespace(t)
	id, err := identify(ns, "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		edit  func(*contents)
		mode  os.FileMode
		tail  string
		undo  bool
		err   error
		event string
	}{
		{name: "ours", undo: true},
		{name: "another boot", edit: func(c *contents) { c.Boot = "another" }, event: "started anew"},
		{name: "another namespace with the same inode", edit: func(c *contents) {
			c.Cookie++
		}, event: "namespace that is gone"},
		{name: "damaged", tail: "x", err: ErrCorrupt},
		{name: "others could write it", mode: 0o666, err: ErrCorrupt},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testenv.In(t, ns, func() error { return testenv.WriteSysctl("net/ipv4/conf/all/arp_ignore", "1") })
			c := contents{id, example().Changes[:1]}
			if tc.edit != nil {
				tc.edit(&c)
			}
			dir := t.TempDir()
			path := filepath.Join(dir, "test-"+strconv.FormatUint(ns.Inode(), 10)+".journal")
			text := encoded(t, c) + tc.tail
			if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, tc.mode|0o600)); err != nil {
				t.Fatal(err)
			}
			var changes *Changes
			err := ns.Do(func() (err error) { changes, err = Open(dir, "test"); return err })
			if !errors.Is(err, tc.err) {
				t.Fatalf("Open: %v", err)
			}
			want := "1"
			if tc.undo {
				want = "0"
			}
			var got string
			testenv.In(t, ns, func() (err error) {
				got, err = testenv.Sysctl("net/ipv4/conf/all/arp_ignore")
				return err
			})
			if got != want {
				t.Errorf("arp_ignore is %s, not %s", got, want)
			}
			if err != nil {
				kept, err := os.ReadFile(path)
				if err != nil || string(kept) != text {
					t.Errorf("the journal did not stay as it was: %q, %v", kept, err)
				}
				return
			}
			defer changes.Close()
			events := changes.Events()
			if tc.event != "" && (len(events) != 1 || !strings.Contains(events[0].String(), tc.event)) {
				t.Errorf("events: %v", events)
			}
		})
	}
}

// TestDirectoryIsGone removes the state directory of a running balancer. Its changes remain in force. The journal and
// its lock are in a new directory, or nowhere if that cannot be made; Open then works without them.
func TestDirectoryIsGone(t *testing.T) {
	for _, again := range []bool{true, false} {
		ns := testenv.Namespace(t)
		dir := filepath.Join(t.TempDir(), "jeoul")
		var c *Changes
		testenv.In(t, ns, func() (err error) { c, err = Open(dir, "test"); return err })
		err := os.RemoveAll(dir)
		if !again && err == nil { // a file in its place
			err = os.WriteFile(dir, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		const sysctl = "net.ipv4.conf.all.arp_ignore"
		vip := netip.MustParseAddr("198.18.0.100")
		if err := errors.Join(c.SetSysctl(sysctl, "1"), c.AddAddress("lo", vip, AddressOptions{})); err != nil {
			t.Fatalf("with a directory that can be made (%v): %v", again, err)
		}
		if value, err := c.Sysctl(sysctl); err != nil || value != "1" {
			t.Errorf("arp_ignore is %s, %v", value, err)
		}
		if links, err := c.Links(vip); err != nil || len(links) != 1 {
			t.Errorf("the address is on %v, %v", links, err)
		}
		testenv.In(t, ns, func() error {
			switch other, err := Open(dir, "test"); {
			case again && !errors.Is(err, ErrBusy):
				t.Errorf("a second process: %v", err)
			case !again && err != nil:
				t.Errorf("a start without a directory: %v", err)
			case !again:
				other.Detach()
			}
			return nil
		})
		if err := c.Close(); err != nil && again {
			t.Error(err)
		}
		testenv.In(t, ns, func() error {
			value, err := os.ReadFile("/proc/sys/net/ipv4/conf/all/arp_ignore")
			if string(value) != "0\n" {
				t.Errorf("taken back, arp_ignore is %q", value)
			}
			return err
		})
	}
}

func TestOnlyNamesUnderNet(t *testing.T) {
	for name, good := range map[string]bool{
		"net.ipv4.conf.eth0/100.rp_filter": true,
		"net/ipv4/conf/eth0.100/rp_filter": true,
		"kernel.panic":                     false,
		"netx.ipv4.conf.all.arp_ignore":    false,
		"net/../kernel/panic":              false,
		"net":                              false,
	} {
		if err := checkName(name); (err == nil) != good {
			t.Errorf("checkName(%q) = %v", name, err)
		}
	}
}

// TestJournalOfEarlierVersions pins the format: a journal that the previous version left must be read, and written
// identically.
func TestJournalOfEarlierVersions(t *testing.T) {
	const text = `{
 "format": "jeoul-network-changes",
 "version": 1,
 "boot": "b",
 "namespace": 1,
 "cookie": 2,
 "name": "agent",
 "pid": 3,
 "changes": [
  {
   "kind": "sysctl",
   "sysctl": "net.ipv4.conf.all.arp_ignore",
   "old": "0",
   "new": "1"
  },
  {
   "kind": "address",
   "link": "lo",
   "index": 1,
   "address": "198.18.0.100"
  },
  {
   "kind": "address",
   "link": "lo",
   "index": 1,
   "address": "2001:2::100"
  }
 ]
}
`
	got, err := decodeJournal([]byte(text))
	if diff := cmp.Diff(example(), got, equal); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	if diff := cmp.Diff(text, encoded(t, example())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
