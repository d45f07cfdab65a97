// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// sameCase is a configuration of a dialect: the dialect's program, and Jeoul with the imported configuration, must
// serve alike.
type sameCase struct {
	dialect, name, text string
	ports, hosts, paths []string
	pools               map[string]string // the pool of each server
	differs             []explainedDifference
	parts               map[string]string // the files that the configuration includes
	up                  int               // the number of servers that keepalived finds to serve
	upAre               []string          // those servers, as in a table of IPVS; empty: any
	containers          bool              // servers are behind the balancer
	sticky              bool              // whether a client stays with a server; the original decides
}

// explainedDifference is a difference that a matching remark explains, for requests that match.
type explainedDifference struct{ requests, remark *regexp.Regexp }

// TestImportsServeTheSame makes the program of a dialect serve requests with a configuration, and then Jeoul with the
// importer's translation of it. A remark must explain each difference: one that the case expects, or one that leaves
// the service out. `make test-import` runs all configurations with 1,000 requests each; otherwise only the first of
// each dialect runs, with fifty.
func TestImportsServeTheSame(t *testing.T) {
	testenv.Also(t, matrixTarget)
	t.Parallel()
	all := os.Getenv("JEOUL_TEST_IMPORTS") != ""
	l := newLab(t, lab.Spec{Clients: 2, Servers: 4, Containers: true})
	for _, server := range l.Servers {
		serveWeb(t, server)
	}
	dialects := []string{"haproxy", "nginx", "iptables", "nftables"}
	if !all {
		dialects = testenv.Some(t, matrixTarget, 2, dialects)
	}
	for _, dialect := range dialects {
		cases := sameCases(t, l, dialect)
		if all && len(cases) < 25 {
			t.Errorf("%s has %d configurations", dialect, len(cases))
		}
		requests := 1000
		if !all {
			cases, requests = cases[:1], 50
		}
		for _, c := range cases {
			t.Run(dialect+"/"+c.name, func(t *testing.T) { c.compare(t, l, requests) })
		}
	}
}

// serveWeb makes a server answer on three ports with its name and the request.
func serveWeb(t *testing.T, server *lab.Host) {
	t.Helper()
	for _, port := range []int{80, 8080} {
		var listener net.Listener
		if err := server.Do(func() (err error) {
			listener, err = net.Listen("tcp4", fmt.Sprintf(":%d", port))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			forwarded, scheme := r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Forwarded-Proto")
			fmt.Fprintf(w, "%s port %d host %s path %s forwarded %q %q\n", server.Name, port, r.Host, r.URL.Path,
				forwarded, scheme)
		})}
		t.Cleanup(func() { web.Close() })
		go web.Serve(listener)
	}
}

// sameCases reads the cases of a dialect.
func sameCases(t *testing.T, l *lab.Lab, dialect string) (list []sameCase) {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "imports", dialect+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	replace := []string{"VIP", l.VIP4.String(), "VIP2", l.VIP4.Next().String(), "VIP6", l.VIP6.String(), "IF",
		l.Balancer.Interface, "BR", l.Balancer.Bridge}
	for i, host := range l.Servers {
		replace = append(replace, fmt.Sprintf("S%d", i+1), host.IPv4.String(), fmt.Sprintf("S%dv6", i+1),
			host.IPv6.String())
	}
	for i, host := range l.Clients {
		replace = append(replace, fmt.Sprintf("C%d", i+1), host.IPv4.String())
	}
	for _, f := range archive.Files {
		c := sameCase{dialect: dialect, name: f.Name, ports: []string{"80"}, hosts: []string{"www.example.org"},
			paths: []string{"/"}, pools: map[string]string{}, parts: map[string]string{}}
		var body strings.Builder
		part := ""
		for line := range strings.Lines(string(f.Data)) {
			if name, is := strings.CutPrefix(line, "#: part "); is {
				part = strings.TrimSpace(name)
			} else if about, is := strings.CutPrefix(line, "#: "); is {
				c.head(t, l, about)
			} else if part != "" {
				c.parts[part] += replaceWords(line, replace)
			} else {
				body.WriteString(replaceWords(line, replace))
			}
		}
		c.text = wrap(dialect, body.String())
		list = append(list, c)
	}
	return list
}

// word matches the placeholder of an address or an interface.
var word = regexp.MustCompile(`\b(VIP[26]?|IF|BR|[SC][1-4](v6)?)\b`)

func replaceWords(text string, pairs []string) string {
	return word.ReplaceAllStringFunc(text, func(w string) string { return pairs[slices.Index(pairs, w)+1] })
}

// head parses a line about a case.
func (c *sameCase) head(t *testing.T, l *lab.Lab, line string) {
	t.Helper()
	words := strings.Fields(line)
	switch words[0] {
	case "ports":
		c.ports = words[1:]
	case "hosts":
		c.hosts = words[1:]
	case "paths":
		c.paths = words[1:]
	case "pools":
		for _, pool := range words[1:] {
			name, servers, _ := strings.Cut(pool, "=")
			for server := range strings.SplitSeq(servers, ",") {
				c.pools[l.Servers[server[1]-'1'].Name] = name
			}
		}
	case "up":
		c.up, _ = strconv.Atoi(words[1])
		for _, server := range words[2:] {
			c.upAre = append(c.upAre, fmt.Sprintf("%X:", l.Servers[server[1]-'1'].IPv4.AsSlice()))
		}
	case "containers":
		c.containers = true
	case "sticky":
		c.sticky = true
	case "differs":
		requests, remark, _ := strings.Cut(strings.TrimSpace(line[len("differs"):]), "::")
		c.differs = append(c.differs, explainedDifference{regexp.MustCompile(strings.TrimSpace(requests)),
			regexp.MustCompile(strings.TrimSpace(remark))})
	default:
		t.Fatalf("%s: %q", c.name, line)
	}
}

// wrap completes a case's part of a configuration to a complete one.
func wrap(dialect, text string) string {
	const times = "\n timeout connect 3s\n timeout client 6s\n timeout server 6s"
	switch dialect {
	case "haproxy":
		return strings.NewReplacer("{D}", "defaults\n mode http"+times, "{T}", "defaults\n mode tcp"+
			times).Replace(text)
	case "nginx":
		return "events {\n}\n" + strings.NewReplacer("{H}", "http {\n access_log off; client_max_body_size 1m;", "{S}",
			"stream {").Replace(text)
	case "keepalived":
		return text
	case "iptables":
		var rules, forward string
		for line := range strings.Lines(text) {
			if rule, is := strings.CutPrefix(line, "FORWARD "); is {
				forward += "-A FORWARD " + rule
			} else {
				rules += line
			}
		}
		return "*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n" + rules +
			"COMMIT\n" + noForward + forward + "COMMIT\n"
	}
	var first, rules, post, forward string
	family := "ip"
	within := false
	for line := range strings.Lines(text) {
		switch word, rest, _ := strings.Cut(line, " "); {
		case word == "SET", word == "CHAIN":
			first, within = first+"\t"+rest, word == "CHAIN" && !strings.Contains(rest, "}")
		case line == "INET\n":
			family = "inet"
		case within:
			first, within = first+line, !strings.HasPrefix(line, "}")
		case word == "POST":
			post += "\t\t" + rest
		case word == "FORWARD":
			forward += "\t\t" + rest
		default:
			rules += "\t\t" + line
		}
	}
	return "table " + family + " nat {\n" + first +
		"\tchain prerouting {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n" + rules +
		"\t}\n\tchain postrouting {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n" +
		post + "\t}\n\tchain forward {\n\t\ttype filter hook forward priority filter; policy accept;\n" + forward + "\t}\n}\n"
}

// noForward begins a table filter of iptables that accepts everything.
const noForward = "*filter\n:FORWARD ACCEPT [0:0]\n"

// request is a client's request.
type request struct {
	client           int
	port, host, path string
}

func (r request) String() string {
	return fmt.Sprintf("C%d :%s %s%s", r.client+1, r.port, r.host, r.path)
}

// requests returns the requests of a case.
func (c sameCase) requests() (list []request) {
	for client := range 2 {
		for _, port := range c.ports {
			for _, host := range c.hosts {
				for _, path := range c.paths {
					list = append(list, request{client, port, host, path})
				}
			}
		}
	}
	return list
}

// compare runs a case with the original program and with Jeoul.
func (c sameCase) compare(t *testing.T, l *lab.Lab, count int) {
	kinds := c.requests()
	each := max(count/len(kinds), 5)
	before := c.original(t, l, func() map[request]map[string]int { return c.askAll(t, l, kinds, each) })
	remarks, after := c.imported(t, l, func() map[request]map[string]int { return c.askAll(t, l, kinds, each) })
	for _, kind := range kinds {
		if d := difference(before[kind], after[kind]); d != "" && !c.explained(kind, after[kind], remarks) {
			t.Errorf("%s: %s\n%s: %v\nimported: %v\nremarks:\n%s\nconfiguration:\n%s", kind, d, c.dialect, before[kind],
				after[kind], remarks, c.text)
		}
	}
	for _, n := range c.differs {
		if !n.remark.MatchString(remarks) {
			t.Errorf("no remark is like %s:\n%s", n.remark, remarks)
		}
	}
}

// difference describes how two counts of answers differ, in an answer or in the share of one; "" if they do not.
func difference(a, b map[string]int) string {
	totals := [2]int{}
	for i, m := range []map[string]int{a, b} {
		for _, n := range m {
			totals[i] += n
		}
	}
	for _, answer := range slices.Sorted(maps.Keys(union(a, b))) {
		x, y := float64(a[answer])/float64(max(totals[0], 1)), float64(b[answer])/float64(max(totals[1], 1))
		// By chance, a share of a half of 100 answers is off by 0.2 once in 60,000 times.
		if (a[answer] == 0) != (b[answer] == 0) || max(x-y, y-x) > 0.25 {
			return fmt.Sprintf("%q is %.2f of the answers, and %.2f imported", answer, x, y)
		}
	}
	return ""
}

func union(a, b map[string]int) map[string]int {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// startTimeoutOriginal bounds the start of a program: an emulated machine is slow.
const startTimeoutOriginal = 10 * time.Minute

// nothing is the answer in the results of a client that is not served.
const nothing = "no answer"

// explained reports whether a remark explains a difference: a remark that the case expects, or, if clients no longer
// get an answer, one that leaves a service of that port out.
func (c sameCase) explained(kind request, after map[string]int, remarks string) bool {
	for _, n := range c.differs {
		if n.requests.MatchString(kind.String()) {
			return true
		}
	}
	for line := range strings.Lines(remarks) {
		speaks := strings.Contains(line, ":"+kind.port) || strings.Contains(line, " "+kind.port+" {`") ||
			strings.Contains(line, "dport "+kind.port) || strings.Contains(line, "-"+kind.port+" could be carried over")
		if strings.Contains(line, ": left out: ") && speaks && len(after) == 1 && after[nothing] > 0 {
			return true
		}
	}
	return false
}

// askAll sends each request a number of times, and counts the answers.
func (c sameCase) askAll(t *testing.T, l *lab.Lab, kinds []request, each int) map[request]map[string]int {
	counts, servers := map[request]map[string]int{}, map[request]map[string]bool{}
	var mu sync.Mutex
	var group sync.WaitGroup
	free := make(chan struct{}, 8)
	for _, kind := range kinds {
		answers, names := map[string]int{}, map[string]bool{}
		counts[kind], servers[kind] = answers, names
		refused := 0 // a request that is never answered need not be repeated forever
		for range each {
			free <- struct{}{}
			mu.Lock()
			enough := refused >= 3 && len(answers) == 1
			mu.Unlock()
			if enough {
				<-free
				break
			}
			group.Go(func() {
				defer func() { <-free }()
				name, answer := c.ask(l, kind)
				mu.Lock()
				defer mu.Unlock()
				names[name] = true
				if answers[answer]++; answer == nothing {
					refused++
				}
			})
		}
	}
	group.Wait()
	for kind, answers := range counts {
		if len(servers[kind]) == 1 && c.sticky {
			answers["always of one server"]++
		}
	}
	return counts
}

// ask sends a request, and returns the server's name and its answer without the parts that differ each time. For
// several servers in a pool, it returns the pool.
func (c sameCase) ask(l *lab.Lab, r request) (name, answer string) {
	const bound = 2 * time.Second // a client that is not served only notices the silence
	client := l.Clients[r.client]
	to, kind := r.target(l)
	if kind == "udp" || kind == "dns" {
		if name = askDatagram(client, to, kind, bound); name == "" {
			return "", nothing
		}
		return name, c.pool(name)
	}
	connection, err := dialWhileRunning(client, to, bound)
	if err != nil {
		return "", nothing
	}
	defer connection.Close()
	connection = wrapTLS(connection, kind)
	connection.SetDeadline(time.Now().Add(10 * bound))
	fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: test\r\nConnection: close\r\n\r\n",
		r.path, r.host)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return "", nothing
	}
	defer response.Body.Close()
	var body bytes.Buffer
	body.ReadFrom(response.Body)
	text := strings.ReplaceAll(body.String(), client.IPv4.String(), "CLIENT")
	name, rest, isServer := strings.Cut(text, " port ")
	if !isServer {
		return "", strings.TrimSpace(fmt.Sprintf("%d %s", response.StatusCode, response.Header.Get("Location")))
	}
	return name, fmt.Sprintf("%d %s port %s", response.StatusCode, c.pool(name), strings.TrimSpace(rest))
}

// pool returns the pool of a server.
func (c sameCase) pool(server string) string {
	if c.pools[server] == "" {
		return "another server: " + server
	}
	return c.pools[server]
}

// run runs a program on the balancer until it ends.
func run(t *testing.T, host *lab.Host, input, path string, args ...string) (output string, err error) {
	t.Helper()
	var text cmdtest.SyncBuffer
	stdin := filepath.Join(host.Dir, "stdin")
	if err := os.WriteFile(stdin, []byte(input), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(stdin)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	process, err := host.Start(context.WithoutCancel(t.Context()), lab.Command{Path: path, Args: args, Stdin: file,
		Stdout: &text, Stderr: &text})
	if err != nil {
		t.Fatal(err)
	}
	err = process.Wait()
	return text.String(), err
}

// must runs a command that must succeed.
func must(t *testing.T, host *lab.Host, input, path string, args ...string) {
	t.Helper()
	if output, err := run(t, host, input, path, args...); err != nil {
		t.Fatalf("%s %v: %v\n%s", path, args, err, output)
	}
}

// flagsOf returns the flags with which keepalived adds a VIP. One of IPv6 is deprecated: as the source of a check it
// would reach servers that have it themselves, and answer to themselves.
func flagsOf(vip string) []string {
	if strings.Contains(vip, ":") {
		return []string{"nodad", "preferred_lft", "0"}
	}
	return nil
}

// original makes the program of the dialect serve while do sends requests.
func (c sameCase) original(t *testing.T, l *lab.Lab, do func() map[request]map[string]int) map[request]map[string]int {
	t.Helper()
	host, ip := l.Balancer, testenv.Program(t, "ip")
	for _, vip := range c.vips(l) {
		must(t, host, "", ip, append([]string{"address", "add", vip, "dev", host.Interface}, flagsOf(vip)...)...)
		defer must(t, host, "", ip, "address", "del", vip, "dev", host.Interface)
	}
	// the namespace's kernel forwards the packets that it has translated
	if c.dialect == "iptables" || c.dialect == "nftables" || c.containers {
		must(t, host, "", testenv.Program(t, "sysctl"), "-qw", "net.ipv4.ip_forward=1")
		defer must(t, host, "", testenv.Program(t, "sysctl"), "-qw", "net.ipv4.ip_forward=0")
	}
	switch c.dialect {
	case "iptables":
		must(t, host, c.text, testenv.Program(t, "iptables-restore"))
		defer must(t, host, "*nat\nCOMMIT\n"+noForward+"COMMIT\n", testenv.Program(t, "iptables-restore"))
		return do()
	case "keepalived":
		defer c.startKeepalived(t, l)()
		return do()
	case "nftables":
		must(t, host, c.text, testenv.Program(t, "nft"), "-f", "-")
		defer must(t, host, "flush ruleset\n", testenv.Program(t, "nft"), "-f", "-")
		return do()
	}
	var log cmdtest.SyncBuffer
	process, err := host.Start(context.WithoutCancel(t.Context()), c.command(t, host.Dir, &log))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { // HAProxy ends on the signal
		process.Signal(syscall.SIGTERM)
		process.Wait()
	}()
	testenv.Eventually(t, startTimeoutOriginal, c.dialect+" listens", func() bool {
		listening, err := run(t, host, "", testenv.Program(t, "ss"), "-Hltn", "src", l.VIP4.String())
		return err == nil && strings.Count(listening, "\n") >= c.sockets()
	})
	return do()
}

// vips returns the addresses that are added to the balancer's interface for the program of the dialect.
func (c sameCase) vips(l *lab.Lab) []string {
	switch {
	case c.dialect != "keepalived":
		return []string{l.VIP4.String() + "/32"}
	case c.holdsVIP():
		return nil
	}
	return []string{l.VIP4.String() + "/32", l.VIP4.Next().String() + "/32", l.VIP6.String() + "/128"}
}

// sockets returns the number of addresses on which the program listens.
func (c sameCase) sockets() int {
	seen := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?:bind|listen|,)\s*[0-9.]+:(\d+)`).FindAllStringSubmatch(c.text, -1) {
		seen[match[1]] = true
	}
	return len(seen)
}

// command returns the command of a dialect's program, which stays in the foreground.
func (c sameCase) command(t *testing.T, dir string, log *cmdtest.SyncBuffer) lab.Command {
	t.Helper()
	file := filepath.Join(dir, c.dialect+".conf")
	text, args := c.text, []string{"-db", "-f", file}
	if c.dialect == "nginx" {
		const module = "/usr/lib/nginx/modules/ngx_stream_module.so"
		text = "daemon off;\nuser root;\npid " + dir + "/nginx.pid;\nload_module " + module + ";\n" + text
		args = []string{"-e", filepath.Join(dir, "error.log"), "-p", dir, "-c", file}
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return lab.Command{Path: testenv.Program(t, c.dialect), Args: args, Stdout: log, Stderr: log}
}

// imported makes Jeoul serve with the importer's translation of the configuration while do sends requests, and returns
// the remarks.
func (c sameCase) imported(t *testing.T, l *lab.Lab, do func() map[request]map[string]int) (remarks string,
	answers map[request]map[string]int) {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(l.Balancer.Dir, "imported")
	if err := c.write(file); err != nil {
		t.Fatal(err)
	}
	var output, stderr cmdtest.SyncBuffer
	args := []string{"import", c.dialect, file, "--vip", l.VIP4.String(), "--source", l.FullNAT.String(), "--interface",
		l.Balancer.Interface}
	if l.Balancer.Bridge != "" {
		args = append(args, "--interface", l.Balancer.Bridge)
	}
	process, err := l.Balancer.Start(t.Context(),
		lab.Command{Path: executable, Args: args, Env: append(os.Environ(), actAsJeoul+"=1"), Stdout: &output,
			Stderr: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	process.Wait() // its status reports whether something was left out
	configuration := entry{}
	if err := yaml.Unmarshal([]byte(output.String()), &configuration); err != nil {
		t.Fatal(err)
	}
	if len(configuration) == 0 { // nothing could be carried over, and nothing is served
		return stderr.String(), do()
	}
	b := newBalancer(t, l.Balancer)
	b.configureImported(t, configuration)
	b.daemon = jeoul(t, b.host, &b.log, b.arguments()...)
	defer stop(t, b.daemon)
	b.within(t, startTimeoutOriginal, "the backends are known", func(s *ops.Status) bool {
		for _, service := range s.Services {
			for _, backend := range service.Backends {
				if !c.isFinal(backend) {
					return false
				}
			}
		}
		return len(s.Services) > 0 && (s.VRRP == nil || s.VRRP.State == "active")
	})
	return stderr.String(), do()
}

// isFinal reports whether a backend's state is final: where the original checks servers, some are down.
func (c sameCase) isFinal(backend ops.Backend) bool {
	if c.dialect == "keepalived" && backend.Health != nil {
		return backend.Health.State == lb.Healthy || backend.Health.State == lb.Failing && backend.State != lb.Up
	}
	return slices.Contains([]lb.BackendState{lb.Up, lb.Draining, lb.Standby, lb.WeightZero}, backend.State)
}
