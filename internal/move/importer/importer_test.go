// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

var update = flag.Bool("update", false, "write the golden files anew")

// testcase is testdata/DIALECT/NAME.txtar: `options`, the input `in` and its includes, and the expected results
// `want.yaml` and `want.remarks`.
type testcase struct {
	dialect, path string
	archive       *txtar.Archive
}

func cases(t testing.TB) []testcase {
	t.Helper()
	paths, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	var all []testcase
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, testcase{filepath.Base(filepath.Dir(path)), path, archive})
	}
	return all
}

func (c testcase) name() string { return strings.TrimSuffix(c.path[len("testdata/"):], ".txtar") }

// section returns a file of the archive.
func (c testcase) section(name string) string {
	for _, f := range c.archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// options reads the section options.
func (c testcase) options(t testing.TB) draft.Options {
	t.Helper()
	options := draft.Options{Include: c.include}
	for _, word := range strings.Fields(c.section("options")) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "interface":
			options.Interfaces = append(options.Interfaces, value)
		case "vip":
			options.VIPs = append(options.VIPs, netip.MustParseAddr(value))
		case "source":
			options.Sources = append(options.Sources, netip.MustParseAddr(value))
		case "mode":
			options.Mode = lb.Mode(value)
		case "http-as-tcp":
			options.HTTPAsTCP = true
		case "resolve":
			options.Resolve = resolve
		default:
			t.Fatalf("%s: option %q", c.path, word)
		}
	}
	return options
}

// include returns the files of the archive that match a pattern.
func (c testcase) include(pattern string) ([]draft.File, error) {
	var files []draft.File
	for _, f := range c.archive.Files {
		if ok, err := filepath.Match(pattern, f.Name); err != nil {
			return nil, err
		} else if ok {
			files = append(files, draft.File{Name: f.Name, Data: f.Data})
		}
	}
	return files, nil
}

// resolve simulates a name server.
func resolve(name string) ([]netip.Addr, error) {
	hosts := map[string]string{"www.example.com": "192.0.2.100", "web1.example.com": "192.0.2.11",
		"web2.example.com": "192.0.2.12"}
	addr, known := hosts[name]
	if !known {
		return nil, errors.New("no such host")
	}
	return []netip.Addr{netip.MustParseAddr(addr)}, nil
}

func (c testcase) run(t testing.TB) (*Result, error) {
	t.Helper()
	return Import(c.dialect, draft.File{Name: "in", Data: []byte(c.section("in"))}, c.options(t))
}

// TestGolden: each case becomes the expected configuration, which Jeoul accepts, and each of its lines is carried over
// or has a remark.
func TestGolden(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.name(), func(t *testing.T) {
			result, err := c.run(t)
			if err != nil && !errors.Is(err, draft.ErrNothing) {
				t.Fatal(err)
			}
			c.compare(t, result)
			c.checkLines(t, result)
			if err != nil {
				return
			}
			cfg, err := config.Parse("want.yaml", result.Text)
			if err != nil {
				t.Fatalf("Jeoul refuses it:\n%v\n%s", err, result.Text)
			}
			if len(cfg.Warnings) > 0 {
				t.Errorf("Jeoul warns of it:\n%v", cfg.Warnings.Err())
			}
		})
	}
}

// compare compares a result with the expected one, or updates that.
func (c testcase) compare(t *testing.T, result *Result) {
	t.Helper()
	var remarks strings.Builder
	for _, r := range result.Remarks {
		fmt.Fprintln(&remarks, r)
	}
	got := map[string]string{"want.yaml": string(result.Text), "want.remarks": remarks.String()}
	if *update {
		c.archive.Files = slices.DeleteFunc(c.archive.Files, func(f txtar.File) bool {
			return strings.HasPrefix(f.Name, "want.")
		})
		for _, name := range []string{"want.yaml", "want.remarks"} {
			c.archive.Files = append(c.archive.Files, txtar.File{Name: name, Data: []byte(got[name])})
		}
		if err := os.WriteFile(c.path, txtar.Format(c.archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range got {
		if diff := cmp.Diff(c.section(name), text); diff != "" {
			t.Errorf("%s (-want +got; -update writes it anew):\n%s", name, diff)
		}
	}
}

// checkLines checks that each line with content is carried over or has a remark, and that a reader has noted it.
func (c testcase) checkLines(t *testing.T, result *Result) {
	t.Helper()
	noted := map[remark.At]bool{}
	for _, at := range result.Carried {
		noted[at] = true
	}
	for _, r := range result.Remarks {
		noted[r.At] = true
		if strings.HasPrefix(r.Why, "not understood") && !strings.Contains(c.path, "unknown") {
			t.Errorf("not understood: %s", r)
		}
	}
	i := slices.IndexFunc(dialects, func(d dialect) bool { return d.name == c.dialect })
	for _, f := range c.archive.Files {
		if f.Name == "options" || strings.HasPrefix(f.Name, "want.") {
			continue
		}
		n := 0
		for text := range strings.Lines(string(f.Data)) {
			n++
			at := remark.At{File: f.Name, Line: n}
			if !(draft.Line{At: at, Text: text}).Blank(dialects[i].comments) && !noted[at] {
				t.Errorf("%s: neither carried over nor remarked: %s", at, text)
			}
		}
	}
}

// TestEachDialectHasTen: each dialect is tested with at least ten configurations.
func TestEachDialectHasTen(t *testing.T) {
	count := map[string]int{}
	for _, c := range cases(t) {
		count[c.dialect]++
	}
	for _, name := range Dialects() {
		if count[name] < 10 {
			t.Errorf("%s has %d cases", name, count[name])
		}
	}
}

// fuzz passes any input to a reader. The reader may reject it, but Jeoul must accept a configuration that the reader
// makes.
func fuzz(f *testing.F, name string) {
	for _, c := range cases(f) {
		f.Add([]byte(c.section("in")), c.dialect == name)
	}
	f.Fuzz(func(t *testing.T, data []byte, all bool) {
		options := draft.Options{Include: func(string) ([]draft.File, error) {
			return []draft.File{{Name: "other", Data: data}}, nil
		}}
		if all {
			options.VIPs = []netip.Addr{netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("2001:db8::100")}
			options.Sources = []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("2001:db8::5")}
			options.HTTPAsTCP, options.Resolve = true, resolve
		}
		result, err := Import(name, draft.File{Name: "in", Data: data}, options)
		if err != nil {
			return
		}
		if _, err := config.Parse("out", result.Text); err != nil {
			t.Fatalf("Jeoul refuses it:\n%v\n%s", err, result.Text)
		}
	})
}

func FuzzIPVSAdm(f *testing.F)    { fuzz(f, "ipvsadm") }
func FuzzKeepalived(f *testing.F) { fuzz(f, "keepalived") }
func FuzzNFTables(f *testing.F)   { fuzz(f, "nftables") }
func FuzzNginx(f *testing.F)      { fuzz(f, "nginx") }
func FuzzIPTables(f *testing.F)   { fuzz(f, "iptables") }
func FuzzHAProxy(f *testing.F)    { fuzz(f, "haproxy") }

// TestLarge: the time for a large input grows with its size, not with the square of it. The test asserts no time, but
// takes minutes if that does not hold.
func TestLarge(t *testing.T) {
	for name, line := range map[string]string{
		"ipvsadm":        "-a -t 192.0.2.1:80 -r 10.%d.%d.%d:80 -g -w 1\n",
		"iptables":       "-A PREROUTING -d 10.%d.%d.%d -p tcp --dport 80 -j DNAT --to-destination 192.0.2.2\n",
		"haproxy":        " server s%d 10.0.%d.%d:80 check\n",
		"haproxy, rules": " acl a%[1]d%[2]d%[3]d path /%[3]d\n http-request deny if a%[1]d%[2]d%[3]d\n",
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			dialect, _, _ := strings.Cut(name, ",")
			text.WriteString(map[string]string{"ipvsadm": "-A -t 192.0.2.1:80 -s rr\n", "iptables": "*nat\n",
				"haproxy":        "listen l\n bind 192.0.2.1:80\n",
				"haproxy, rules": "listen l\n mode http\n bind 192.0.2.1:80\n server s 10.0.0.1:80\n"}[name])
			for n := 0; text.Len() < 1<<15; n++ {
				fmt.Fprintf(&text, line, n>>16&255, n>>8&255, n&255)
			}
			if _, err := Import(dialect, draft.File{Name: "in", Data: []byte(text.String())},
				draft.Options{Sources: []netip.Addr{netip.MustParseAddr("192.0.2.9")}}); err != nil {
				t.Log(err)
			}
		})
	}
}

// TestRefused: a file that cannot be read is rejected, with the line.
func TestRefused(t *testing.T) {
	ipvs := "-A -t 192.0.2.1:80 -s rr\n-a -t 192.0.2.1:80 -r 192.0.2.2:80 -g\n"
	for _, c := range []struct{ name, dialect, data, want string }{
		{"zero byte", "ipvsadm", ipvs + "a\x00b\n", "in:3: a zero byte"},
		{"UTF-16", "ipvsadm", "\xff\xfe-\x00A\x00\n\x00", "in:1: a zero byte"},
		{"latin1", "ipvsadm", ipvs + "# caf\xe9\n", "in:3: not UTF-8"},
		{"long line", "ipvsadm", ipvs + "# " + strings.Repeat("x", 70000), "in:3: a line of 70002 bytes"},
		{"too large", "ipvsadm", strings.Repeat("# 3456789012345\n", 1<<20) + ipvs, "the input has"},
		{"nothing", "ipvsadm", "# empty\n", "nothing in the file is of ipvsadm"},
		{"a circle of includes", "keepalived", "virtual_server 192.0.2.1 80 {\n}\ninclude other\n",
			"other:3: includes other, which includes this file"},
		{"a block that does not end", "keepalived", "virtual_server 192.0.2.1 80 {\n",
			"in:1: a block that does not end"},
		{"a brace too much", "keepalived", "virtual_server 192.0.2.1 80 {\n}\n}\n", "in:3: a brace that ends no block"},
		{"nginx in a circle", "nginx", "stream {\n}\ninclude other;\n",
			"other:3: includes other, which includes this file"},
		{"nginx, a block that does not end", "nginx", "stream {\n", "in:1: a block that does not end"},
		{"nginx, no semicolon", "nginx", "stream {\n}\nuser www\n", "in:3: a directive without a semicolon"},
		{"nginx, a quotation", "nginx", "stream {\n}\nuser \"www;\n", "in:3: a quotation that does not end"},
		{"other dialect", "ipvsadm", "\nfrontend www\n  bind :80\n", "in:2: `frontend www` is of haproxy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Import(c.dialect, draft.File{Name: "in", Data: []byte(c.data)}, draft.Options{
				Include: func(name string) ([]draft.File, error) {
					return []draft.File{{Name: name, Data: []byte(c.data)}}, nil
				}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
