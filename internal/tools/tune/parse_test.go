// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
	"github.com/jeoul/jeoul/internal/tools/tune/setting"
)

func TestBuiltInProfile(t *testing.T) {
	p, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range p.Items {
		if it.Cost == "" && !it.Value.leaves() {
			t.Errorf("%s does not say what it costs", it.ID)
		}
		if it.Document != nil && it.Document.Why == "" && it.Document.Value == "" && len(it.Document.Values) == 0 {
			t.Errorf("%s: document has neither a value nor a reason", it.ID)
		}
		// If experiment 1 has another value, the profile gives the reason.
		if it.Document != nil && it.Document.Why == "" && it.Compare == "" && it.Document.Value != it.Value.String() {
			t.Errorf("%s: nothing says why %q and not %q", it.ID, it.Value, it.Document.Value)
		}
	}
}

func TestProfileMistakes(t *testing.T) {
	good := "{id: a, setting: sysctl net.core.somaxconn, roles: [web], value: 1, why: w, source: s}"
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "empty"},
		{"no items", "items: []", "p.yaml:1: items: missing"},
		{"key", "items:\n  - " + strings.Replace(good, "why", "wy", 1), "p.yaml:2: items[0]: unknown key wy"},
		{"id", "items:\n  - " + strings.Replace(good, "id: a", "id: A B", 1), "items[0].id"},
		{"twice", "items:\n  - " + good + "\n  - " + good, "p.yaml:3: items[1].id: a stands here twice"},
		{"kind", "items:\n  - " + strings.Replace(good, "sysctl net", "sysctrl net", 1), "no kind of setting"},
		{"path", "items:\n  - " + strings.Replace(good, "sysctl net.core.somaxconn", "file /etc/passwd", 1),
			"only files below"},
		{"way out", "items:\n  - " + strings.Replace(good, "sysctl net.core.somaxconn",
			"file /proc/irq/../../etc/passwd", 1), "only files below"},
		{"role", "items:\n  - " + strings.Replace(good, "[web]", "[router]", 1), `"router" is no role`},
		{"fact", "items:\n  - " + strings.Replace(good, "value: 1", "value: {of: disks}", 1), `"disks" is no fact`},
		{"plan", "items:\n  - " + strings.Replace(good, "value: 1", "value: {plan: b}", 1), `the core plan has no "b"`},
		{"no value", "items:\n  - " + strings.Replace(good, "value: 1, ", "", 1), "items[0].value: missing"},
		{"compare", "items:\n  - " + strings.Replace(good, "value: 1", "value: 1, compare: about", 1),
			"items[0].compare"},
		{"drop", "items:\n  - {id: a, drop: true}", "no item a to leave out"},
		{"two documents", "items:\n  - " + good + "\n---\nitems: []", "second YAML document"},
	} {
		_, err := Parse("p.yaml", []byte(tc.text))
		var problems yamlfile.Problems
		if !errors.As(err, &problems) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestProfileOfYourOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.yaml")
	own := `
items:
  - {id: swappiness, setting: sysctl vm.swappiness, roles: [web], value: 1, why: w, source: s}
  - {id: ipv6, drop: true}
  - {id: own, setting: sysctl net.ipv4.tcp_ecn, roles: [web], value: 1, why: w, source: s}
`
	if err := os.WriteFile(path, []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if it, ok := p.Find("swappiness"); !ok || it.Value.String() != "1" {
		t.Errorf("swappiness is %q", it.Value)
	}
	if slices.Contains(p.IDs(), "ipv6") || !slices.Contains(p.IDs(), "own") {
		t.Error(p.IDs())
	}
	if _, err := p.Only([]string{"own", "nosuch"}); !errors.Is(err, ErrItem) ||
		!strings.Contains(err.Error(), "nosuch") {
		t.Error(err)
	}
}

func TestEvaluate(t *testing.T) {
	sysctl, mask := setting.Key{Kind: setting.KindSysctl, Name: "a.b"},
		setting.Key{Kind: setting.KindFile, Name: "/sys/class/net/e/queues/rx-0/rps_cpus"}
	for _, tc := range []struct {
		key       setting.Key
		compare   Compare
		accept    []string
		now, want string
		good      bool
		write     string
	}{
		{sysctl, "", nil, "1\t2", "1 2", true, ""},
		{sysctl, "", nil, "1", "2", false, "2"},
		{sysctl, "", []string{"1", "3"}, "1", "2", true, ""},
		{sysctl, CompareAtLeast, nil, "70000", "65535", true, ""},
		{sysctl, CompareAtLeast, nil, "9223372036854775807", "2000000", true, ""},
		{sysctl, CompareAtLeast, nil, "4096 16384 8000000", "4096 131072 6291456", false, "4096 131072 8000000"},
		{sysctl, CompareAtLeast, nil, "max", "5", false, "5"},
		{sysctl, CompareAtMost, nil, "60", "30", false, "30"},
		{sysctl, CompareAtMost, nil, "15", "30", true, ""},
		{sysctl, CompareCovers, nil, "1024 65535", "10000 65535", true, ""},
		{sysctl, CompareCovers, nil, "9000 60999", "10000 65535", false, "9000 65535"},
		{sysctl, CompareCPUs, nil, "0-3", "0,1,2,3", true, ""},
		{sysctl, CompareNonzero, nil, "00:00:00", "not zero", false, ""},
		{sysctl, CompareNonzero, nil, "6d:00", "not zero", true, ""},
		{mask, CompareMask, nil, "00000000,000000ff", "ff", true, ""},
		{mask, CompareMask, nil, "00000001,000000ff", "ff", false, "ff"},
	} {
		good, write := Item{Compare: tc.compare, Accept: tc.accept}.evaluate(tc.key, tc.now, tc.want)
		if good != tc.good || !good && tc.write != "" && write != tc.write {
			t.Errorf("%s: %q against %q: %v, %q", tc.compare, tc.now, tc.want, good, write)
		}
	}
}

func TestInterrupts(t *testing.T) {
	const text = `           CPU0       CPU1
  99:          1          0  IR-PCI-MSIX-0000:3b:00.0 0-edge  ice-0000:3b:00.0:misc
 100:          1          0  IR-PCI-MSIX-0000:3b:00.0 1-edge  ice-eth0-TxRx-0
 131:          1          0  IR-PCI-MSIX-0000:3b:00.0 1-edge  mlx5_comp31@pci:0000:3b:00.0
 132:          1          0  PCI-MSIX-0000:00:06.0    1-edge  virtio3-input.0
 NMI:          0          0  Non-maskable interrupts
`
	names := parseInterrupts(text)
	for number, want := range map[int]string{99: "", 100: "0", 131: "31", 132: "0"} {
		got := ""
		if match := queueName.FindStringSubmatch(names[number]); match != nil {
			got = match[1]
		}
		if got != want {
			t.Errorf("%d, %q: queue %q, not %q", number, names[number], got, want)
		}
	}
	if len(names) != 4 {
		t.Error(names)
	}
}

func FuzzProfile(f *testing.F) {
	f.Add([]byte(
		"items:\n  - {id: a, setting: sysctl a.b, roles: [web], value: [1, {of: cores, divide: 0}], why: w, source: s}\n"))
	f.Add([]byte("items:\n  - {id: a, drop: true, value: {plan: irq}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("fuzz.yaml", data)
		if err != nil {
			return
		}
		for _, it := range p.Items {
			if it.Drop {
				continue
			}
			if err := setting.CheckItem(it.Setting); err != nil {
				t.Fatal(err)
			}
			// Whatever the facts, the computation ends without a panic.
			for _, n := range []uint64{0, 1, 1<<64 - 1} {
				_, _ = it.Value.resolve(func(string) (uint64, bool) { return n, n > 0 })
			}
		}
	})
}

func FuzzInterrupts(f *testing.F) {
	f.Add(" 100:   1  0  chip 1-edge  ice-eth0-TxRx-0\n")
	f.Fuzz(func(t *testing.T, text string) {
		for number, name := range parseInterrupts(text) {
			if number < 0 || name == "" || strings.ContainsAny(name, " \t\n") {
				t.Fatalf("%d: %q", number, name)
			}
		}
	})
}
