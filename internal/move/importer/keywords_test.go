// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/importer/haproxy"
	"github.com/jeoul/jeoul/internal/move/importer/ipvsadm"
	"github.com/jeoul/jeoul/internal/move/importer/keepalived"
	"github.com/jeoul/jeoul/internal/move/importer/netfilter"
	"github.com/jeoul/jeoul/internal/move/importer/nginx"
	"github.com/jeoul/jeoul/internal/move/remark"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// passedOver has the words that each dialect's reader skips, with the configurations to put them in, by their place: at
// @, and for place@MORE several lines.
var passedOver = []struct {
	dialect  string
	keywords draft.Keywords
	places   map[string]string
	// inline: the word is in a line that has an effect besides.
	inline []string
}{
	{"haproxy", haproxy.Keywords, map[string]string{
		"bind":    haproxyTCP("", "", "bind 192.0.2.80:80 @", "server w1 10.0.0.1:80"),
		"server":  haproxyTCP("", "", "bind 192.0.2.80:80", "server w1 10.0.0.1:80 @"),
		"option":  haproxyTCP("", "@", "bind 192.0.2.80:80", "server w1 10.0.0.1:80"),
		"timeout": haproxyTCP("", "@", "bind 192.0.2.80:80", "server w1 10.0.0.1:80"),
		"section": haproxyTCP("", "", "bind 192.0.2.80:80\n @", "server w1 10.0.0.1:80"),
		"global":  haproxyTCP("@", "", "bind 192.0.2.80:80", "server w1 10.0.0.1:80"),
	}, []string{"bind", "server"}},
	{"nginx", nginx.Keywords, map[string]string{
		"main":     "@\nevents {\n}\nstream {\n server {\n  listen 192.0.2.80:80;\n  proxy_pass 10.0.0.1:80;\n }\n}\n",
		"stream":   "events {\n}\nstream {\n@\n server {\n  listen 192.0.2.80:80;\n  proxy_pass 10.0.0.1:80;\n }\n}\n",
		"http":     "events {\n}\nhttp {\n@\n client_max_body_size 1m;\n server {\n  listen 192.0.2.80:80;\n  location / {\n   proxy_pass http://10.0.0.1;\n  }\n }\n}\n",
		"upstream": "events {\n}\nhttp {\n client_max_body_size 1m;\n upstream u {\n  server 10.0.0.1;\n@\n }\n server {\n  listen 192.0.2.80:80;\n  location / {\n   proxy_pass http://u;\n  }\n }\n}\n",
		"listen":   "events {\n}\nhttp {\n client_max_body_size 1m;\n server {\n  listen 192.0.2.80:80 @;\n  location / {\n   proxy_pass http://10.0.0.1;\n  }\n }\n}\n",
	}, []string{"listen"}},
	{"keepalived", keepalived.Keywords, map[string]string{
		"top":            "@\n" + virtualServer("", ""),
		"global_defs":    "global_defs {\n@\n}\n" + virtualServer("", ""),
		"vrrp_instance":  "vrrp_instance V {\n interface eth0\n virtual_router_id 51\n version 3\n virtual_ipaddress {\n  192.0.2.80/24\n }\n@\n}\n" + virtualServer("", ""),
		"virtual_server": virtualServer("@", ""),
		"checker":        virtualServer("", "@"),
	}, nil},
	{"iptables", netfilter.Keywords, map[string]string{
		"rule": "*nat\n-A PREROUTING -d 192.0.2.80/32 -p tcp @ --dport 80 -j DNAT --to-destination 10.0.0.1:80\nCOMMIT\n",
	}, []string{"rule"}},
	{"nftables", netfilter.Keywords, map[string]string{
		"statement": "table ip nat {\n chain prerouting {\n  type nat hook prerouting priority dstnat; policy accept;\n  ip daddr 192.0.2.80 tcp dport 80 @ dnat to 10.0.0.1:80 @END\n }\n}\n",
	}, []string{"statement"}},
	{"ipvsadm", ipvsadm.Keywords, map[string]string{
		"service": "-A -t 192.0.2.80:80 -s rr @\n-a -t 192.0.2.80:80 -r 10.0.0.1:80 -g\n",
		"server":  "-A -t 192.0.2.80:80 -s rr\n-a -t 192.0.2.80:80 -r 10.0.0.1:80 -i @\n",
	}, []string{"service", "server"}},
}

// haproxyTCP returns a configuration for TCP.
func haproxyTCP(global, option, bind, server string) string {
	return fmt.Sprintf(
		"global\n %s\ndefaults\n mode tcp\n timeout connect 3s\n timeout client 6s\n timeout server 6s\nlisten web\n %s\n %s\n %s\n server w2 10.0.0.2:80\n", global, option, bind, server)
}

func virtualServer(statement, checker string) string {
	return "virtual_server 192.0.2.80 80 {\n lb_algo rr\n lb_kind DR\n protocol TCP\n" + statement +
		"\n real_server 192.0.2.81 80 {\n  TCP_CHECK {\n   connect_timeout 1\n" + checker + "\n  }\n }\n}\n"
}

// insert inserts a word at its place.
func insert(config, text string) string {
	if strings.HasPrefix(text, "comment") { // in nft, a comment follows the rule's statements
		return strings.NewReplacer("@END", text, "@", "").Replace(config)
	}
	return strings.NewReplacer("@END", "", "@", text).Replace(config)
}

// importText imports a configuration. It omits the heading and comments, which have line numbers.
func importText(t testing.TB, dialect, text string) (yaml string, remarks []remark.Remark) {
	t.Helper()
	result, err := Import(dialect, draft.File{Name: "in", Data: []byte(text)},
		draft.Options{Interfaces: []string{"eth0"},
			Sources: []netip.Addr{netip.MustParseAddr("192.0.2.5")},
			VIPs:    []netip.Addr{netip.MustParseAddr("192.0.2.80")}})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return comments.ReplaceAllString(string(result.Text), ""), result.Remarks
}

var comments = regexp.MustCompile(`(?m)^\s*#.*\n`)

// TestPassedOver: each skipped word has a reason. The configuration is the same with and without the word, a remark has
// the reason if the word is a separate line, and the program of the dialect accepts it.
func TestPassedOver(t *testing.T) {
	for _, d := range passedOver {
		t.Run(d.dialect, func(t *testing.T) {
			seen := map[string]bool{}
			for _, k := range d.keywords {
				place, stands := d.places[k.Where]
				if !stands {
					continue // of netfilter's other language
				}
				if key := k.Where + " " + k.Name; k.Why == "" || seen[key] {
					t.Errorf("%s stands twice, or has no reason", key)
				}
				seen[k.Where+" "+k.Name] = true
				if k.Example == "" {
					continue
				}
				without, before := importText(t, d.dialect, insert(place, ""))
				with, after := importText(t, d.dialect, insert(place, k.Example))
				if with != without {
					t.Errorf("%s changes the configuration:\n%s\nwithout:\n%s", k.Example, with, without)
				}
				remarked := slices.ContainsFunc(after, func(r remark.Remark) bool {
					return r.Kind == remark.Needless && strings.Contains(r.Why, k.Why)
				})
				if !remarked && !slices.Contains([]string{"iptables", "nftables", "ipvsadm"}, d.dialect) {
					t.Errorf("%s: no remark says that it changes nothing: %v", k.Example, after)
				}
				if left := func(r remark.Remark) bool {
					return r.Kind == remark.Left
				}; slices.ContainsFunc(after, left) && !slices.ContainsFunc(before, left) {
					t.Errorf("%s: %v", k.Example, after)
				}
			}
		})
	}
}

// TestProgramsKnowPassedOver: the programs themselves accept the examples of these tables, all of one place at once.
func TestProgramsKnowPassedOver(t *testing.T) {
	takes := map[string]func(*testing.T, testcase){
		"haproxy": haproxyTakes, "iptables": iptablesTakes, "keepalived": keepalivedTakes, "nftables": nftTakes,
		"nginx": nginxTakes}
	for _, d := range passedOver {
		if takes[d.dialect] == nil {
			continue // ipvsadm checks no rule without IPVS
		}
		for place, config := range d.places {
			t.Run(d.dialect+" "+place, func(t *testing.T) {
				var examples []string
				for _, k := range d.keywords {
					if k.Where == place && k.Example != "" && !slices.Contains(alone, k.Example) {
						examples = append(examples, k.Example)
					}
				}
				between := "\n"
				if slices.Contains(d.inline, place) {
					between = " "
				}
				text := insert(config, strings.Join(examples, between))
				takes[d.dialect](t,
					testcase{d.dialect, d.dialect + "/" + place,
						&txtar.Archive{Files: []txtar.File{{Name: "in", Data: []byte(text)}}}})
			})
		}
	}
}

// alone are examples that conflict with others of their place, or that do something a test must not do.
var alone = []string{"defer-accept", "thread 1", "no-tfo", "no-ssl-reuse", "no-tls-tickets", "--match tcp",
	"--set-counters 1 60", "nbproc 1", "uid 65534", "gid 65534", "unsetenv A", "resetenv A",
	"transparent", `comment "web"`, "proxy_cache_lock off;", "quiet", "deferred", "noepoll", "nopoll", "daemon",
	"working_directory /tmp;",
	"thread-group 1 1", "sh-fallback", "mh-fallback"}

// keywordLine matches a line of `haproxy -dK` about servers and addresses: the word, and its number of values.
var keywordLine = regexp.MustCompile(`^\s*(?:server <name> <addr>|bind <addr>(?: ssl)?) (\S+)(?: ([+-]\d+))?`)

// TestNothingSilent: each parameter of servers and addresses that HAProxy lists, and each option, is carried over in
// part or has a remark.
func TestNothingSilent(t *testing.T) {
	program := testenv.Program(t, "haproxy")
	listed, _ := exec.CommandContext(t.Context(), program, "-dKall", "-c", "-f", "/dev/null").CombinedOutput()
	checked := 0
	for line := range strings.Lines(string(listed)) {
		config, word := silentCase(strings.TrimSpace(line))
		if word == "" || slices.Contains(without, word) {
			continue
		}
		checked++
		yaml, remarks := importText(t, "haproxy", strings.ReplaceAll(config, "@", ""))
		with, remarked := importRaw(t, strings.ReplaceAll(config, "@", word))
		if with == yaml && len(remarked) <= len(remarks) {
			t.Errorf("%s: dropped in silence", strings.TrimSpace(line))
		}
	}
	if checked < 150 {
		t.Errorf("HAProxy lists %d words:\n%s", checked, listed)
	}
}

// without are words for a default state, or that disable an unset option.
var without = []string{"no-check", "no-backup", "no-ssl", "no-check-ssl", "no-agent-check", "no-send-proxy",
	"no-send-proxy-v2", "no-send-proxy-v2-ssl", "no-send-proxy-v2-ssl-cn", "enabled", "check",
	"usesrc 7", "option allbackups"}

// silentCase returns a configuration and the word at its @, or "" if the line has none.
func silentCase(line string) (config, word string) {
	if match := keywordLine.FindStringSubmatch(line); match != nil {
		word = match[1]
		if match[2] != "" && match[2] != "+0" {
			word += " 7"
		}
		if strings.HasPrefix(line, "bind") {
			return haproxyTCP("", "", "bind 192.0.2.80:80 @", "server w1 10.0.0.1:80 check"), word
		}
		return haproxyTCP("", "option httpchk GET /", "bind 192.0.2.80:80", "server w1 10.0.0.1:80 check @"), word
	}
	if option, is := strings.CutPrefix(line, "option "); is {
		return haproxyTCP("", "@", "bind 192.0.2.80:80", "server w1 10.0.0.1:80"), "option " + strings.Fields(option)[0]
	}
	return "", ""
}

// importRaw is importText for configurations of which nothing may remain.
func importRaw(t testing.TB, text string) (string, []remark.Remark) {
	t.Helper()
	result, err := Import("haproxy", draft.File{Name: "in", Data: []byte(text)},
		draft.Options{Interfaces: []string{"eth0"}, Sources: []netip.Addr{netip.MustParseAddr("192.0.2.5")}})
	if result == nil {
		t.Fatal(err)
	}
	return comments.ReplaceAllString(string(result.Text), ""), result.Remarks
}
