// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/jeoul/jeoul/internal/test/testdocs"
)

// commandTest names the test that runs a command of a page, in one of these files, or the reason why no test does.
type commandTest struct {
	test   string // a file of the tree, below cmd/jeoul, or from the root, as scripts/…
	reason string
}

const (
	looks    = "looks at a host that has what the page speaks of"
	notOurs  = "a program of the system's, beside what the page is about"
	byHand   = "tried by hand: it takes minutes to hours, and a test of the program's parts each"
	library  = "TestMeasure of its package measures the same, less of it"
	machines = "needs other machines, or a network card"
)

// commandTests holds each command that a page shows: this program's by its commands, other programs by name.
var commandTests = map[string]commandTest{
	"jeoul advise":             {test: "testdata/script/advise.txtar"},
	"jeoul agent":              {test: "testdata/root/agent.txtar"},
	"jeoul apply":              {test: "testdata/root/overtcp.txtar"},
	"jeoul backend check":      {test: "testdata/root/overtcp.txtar"},
	"jeoul backend disable":    {test: "testdata/root/balance.txtar"},
	"jeoul backend drain":      {test: "e2e_drain_test.go"},
	"jeoul backend enable":     {test: "e2e_drain_test.go"},
	"jeoul backend list":       {test: "testdata/root/overtcp.txtar"},
	"jeoul backend undo":       {test: "e2e_drain_test.go"},
	"jeoul backend weight":     {test: "testdata/root/overtcp.txtar"},
	"jeoul balancer drain":     {test: "e2e_bgp_test.go"},
	"jeoul balancer undrain":   {test: "e2e_bgp_test.go"},
	"jeoul bench distribution": {reason: library},
	"jeoul bench memory":       {test: "testdata/root/measure.txtar"},
	"jeoul bench packets":      {test: "testdata/root/measure.txtar"},
	"jeoul bench run":          {test: "testdata/root/bench.txtar"},
	"jeoul bench scale":        {reason: library},
	"jeoul capture":            {test: "testdata/root/capture.txtar"},
	"jeoul completion":         {test: "testdata/script/completion.txtar"},
	"jeoul describe backend":   {test: "testdata/root/overtcp.txtar"},
	"jeoul dashboard":          {test: "e2e_dashboard_test.go"},
	"jeoul detach":             {test: "testdata/root/refuse.txtar"},
	"jeoul diff":               {test: "testdata/root/overtcp.txtar"},
	"jeoul doctor":             {test: "testdata/script/doctor.txtar"},
	"jeoul export":             {test: "testdata/script/export.txtar"},
	"jeoul get backends":       {test: "testdata/root/overtcp.txtar"},
	"jeoul get checks":         {test: "testdata/root/overtcp.txtar"},
	"jeoul get events":         {test: "testdata/root/overtcp.txtar"},
	"jeoul get flows":          {test: "testdata/root/balance.txtar"},
	"jeoul get services":       {test: "testdata/root/overtcp.txtar"},
	"jeoul get members":        {test: "e2e_members_test.go"},
	"jeoul import":             {test: "testdata/script/import.txtar"},
	"jeoul kubernetes":         {reason: "runs another program; tried by hand beside a cluster of test/kubernetes"},
	"jeoul man":                {test: "man_test.go"},
	"jeoul members key":        {test: "e2e_members_test.go"},
	"jeoul plan":               {test: "testdata/script/plan.txtar"},
	"jeoul report":             {test: "testdata/root/measure.txtar"},
	"jeoul report compare":     {test: "report_test.go"},
	"jeoul report summarise":   {test: "report_test.go"},
	"jeoul run":                {test: "testdata/root/balance.txtar"},
	"jeoul status":             {test: "testdata/root/balance.txtar"},
	"jeoul token":              {test: "testdata/root/overtcp.txtar"},
	"jeoul top":                {test: "e2e_top_test.go"},
	"jeoul trace":              {test: "testdata/root/trace.txtar"},
	"jeoul try":                {test: "e2e_try_test.go"},
	"jeoul tune apply":         {test: "testdata/root/tune.txtar"},
	"jeoul tune check":         {test: "testdata/root/tune.txtar"},
	"jeoul tune revert":        {test: "testdata/root/tune.txtar"},
	"jeoul tune show":          {test: "testdata/script/tune.txtar"},
	"jeoul wire":               {test: "testdata/root/wire.txtar"},

	"deploy/kubernetes/kubeconfig.sh": {reason: "needs a cluster; tried by hand"},

	"curl":                    {test: "testdata/root/balance.txtar"},
	"haproxy":                 {test: "internal/move/exporter/programs_test.go"},
	"ipvsadm-restore":         {test: "internal/move/exporter/programs_test.go"},
	"ipvsadm-save":            {reason: notOurs},
	"keepalived":              {test: "internal/move/exporter/programs_test.go"},
	"kill":                    {test: "testdata/root/balance.txtar"},
	"ip":                      {test: "testdata/root/balance.txtar"},
	"dpkg":                    {test: "scripts/packages/guest.sh"},
	"systemctl":               {test: "scripts/packages/guest.sh"},
	"make":                    {reason: byHand},
	"scripts/test-kernels.sh": {reason: byHand},
	"xdp-loader":              {test: "internal/balancer/datapath/dispatched_test.go"},
	"podman":                  {reason: "needs a registry's base image; tried by hand, as the page says"},
	"ansible-playbook":        {test: "e2e_machines_test.go"},
	"ethtool":                 {reason: machines},
	"arping":                  {reason: looks},
	"ndisc6":                  {reason: looks},
	"nft":                     {reason: looks},
	"nstat":                   {reason: looks},
	"sysctl":                  {reason: looks},
	"tc":                      {reason: looks},
	"wireshark":               {reason: looks},
	"apt-get":                 {reason: notOurs},
	"cd":                      {reason: notOurs},
	"chgrp":                   {reason: notOurs},
	"chmod":                   {reason: notOurs},
	"cp":                      {reason: notOurs},
	"cut":                     {reason: notOurs},
	"dig":                     {reason: notOurs},
	"docker":                  {reason: notOurs},
	"dpkg-deb":                {reason: notOurs},
	"echo":                    {reason: notOurs},
	"editor":                  {reason: notOurs},
	"git":                     {reason: notOurs},
	"grep":                    {reason: notOurs},
	"head":                    {reason: notOurs},
	"install":                 {reason: notOurs},
	"kubectl":                 {reason: notOurs},
	"ls":                      {reason: notOurs},
	"man":                     {reason: notOurs},
	"mkdir":                   {reason: notOurs},
	"mv":                      {reason: notOurs},
	"source":                  {reason: notOurs},
	"tail":                    {reason: notOurs},
}

// TestDocsCommandsAreTried: a test runs each command that a page shows, or the table gives the reason why not.
func TestDocsCommandsAreTried(t *testing.T) {
	root := testdocs.Root(t)
	parser, err := newParser(context.Background(), io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	met := map[string]bool{}
	for _, command := range shownCommands(t) {
		name := verb(parser.Model.Node, command.words)
		if _, known := commandTests[name]; !known {
			t.Errorf("%s: no test that runs %q is in the table, nor why there is none", command.at, name)
		}
		met[name] = true
	}
	for name, by := range commandTests {
		if !met[name] {
			t.Errorf("no page shows %q any more", name)
		}
		if by.test != "" && !runs(t, root, by.test, name) {
			t.Errorf("%s does not run %q", by.test, name)
		}
	}
}

// TestDocsRestartsWait: a page that ends a process by SIGUSR2 waits for its end, as a start beside it is refused.
func TestDocsRestartsWait(t *testing.T) {
	restarts := 0
	for _, page := range testdocs.Pages(t) {
		for _, block := range page.Blocks() {
			_, rest, found := strings.Cut(block.Text, "kill -USR2")
			if !found {
				continue
			}
			restarts++
			if !strings.Contains(rest, "tail --pid") {
				t.Errorf("%s:%d: the block does not wait until the process has ended", page.Path, block.Line)
			}
		}
	}
	if restarts < 2 {
		t.Errorf("only %d restarts were found", restarts)
	}
}

// verb returns a command's name; for this program, with its commands, without arguments.
func verb(node *kong.Node, words []string) string {
	if words[0] != "jeoul" {
		return words[0]
	}
	name := words[0]
	for _, word := range words[1:] {
		i := slices.IndexFunc(node.Children, func(child *kong.Node) bool { return child.Name == word })
		if i >= 0 {
			node = node.Children[i]
			name += " " + word
		}
	}
	return name
}

// runs reports whether a test's file contains the command: as in a shell, or, in Go, as a list of words.
func runs(t *testing.T, root, file, name string) bool {
	t.Helper()
	if !strings.Contains(strings.TrimPrefix(file, "testdata/"), "/") || strings.HasPrefix(file, "testdata/") {
		file = "cmd/jeoul/" + file
	}
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(name)
	pattern := `\b` + regexp.QuoteMeta(name) + `\b`
	if strings.HasSuffix(file, ".go") {
		pattern = `"` + regexp.QuoteMeta(words[len(words)-1]) + `"`
	}
	return regexp.MustCompile(pattern).Match(text)
}
