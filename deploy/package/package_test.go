// SPDX-License-Identifier: Apache-2.0

// Package deploy tests the Debian packages' scripts without installing them; scripts/packages/guest.sh installs them.
package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/balancer/proxy"
	"github.com/jeoul/jeoul/internal/weigh/lab/claim"
)

// text returns the text of a file of the tree; none if it has no name.
func text(t *testing.T, path string) string {
	t.Helper()
	if path == "" {
		return ""
	}
	data, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// scripts are the scripts of a package, by when they run.
type scripts struct {
	Scripts struct{ PostInstall, PostRemove string }
}

// of returns the text of the scripts after the installation and after the removal of a package.
func of(t *testing.T, config string) (installed, removed string) {
	t.Helper()
	var s scripts
	if err := yaml.Unmarshal([]byte(text(t, config)), &s); err != nil {
		t.Fatal(err)
	}
	return text(t, s.Scripts.PostInstall), text(t, s.Scripts.PostRemove)
}

var (
	unitPattern      = regexp.MustCompile(`jeoul[a-z-]*\.service`)
	directoryPattern = regexp.MustCompile(`(?m)^RuntimeDirectory=(.+)$`)
)

// TestEitherPools: jeoul-kubernetes.service takes pools from a file or, by /etc/default/jeoul-kubernetes alone, from a
// ConfigMap: the program refuses both, and only the default is waited for.
func TestEitherPools(t *testing.T) {
	unit := text(t, "deploy/package/kubernetes/jeoul-kubernetes.service")
	command := regexp.MustCompile(`(?m)^ExecStart=(.+)$`).FindStringSubmatch(unit)
	if command == nil || !slices.Contains(strings.Fields(command[1]), "$POOLS") || strings.Contains(command[1], "--pools") {
		t.Errorf("the command is %q: want its pools from $POOLS alone", command)
	}
	chosen := strings.Index(unit, "\nEnvironment=\"POOLS=--pools /etc/jeoul/pools.yaml\"\n")
	if file := strings.Index(unit, "\nEnvironmentFile="); chosen < 0 || file < 0 {
		t.Error("no default of POOLS that /etc/default/jeoul-kubernetes can replace")
	}
	if strings.Contains(unit, "\nConditionPathExists=/etc/jeoul/pools.yaml\n") {
		t.Error("with a ConfigMap, the unit waits for a file of pools")
	}
	defaults := text(t, "deploy/package/kubernetes/jeoul-kubernetes.default")
	if page := text(t, "docs/start/kubernetes.md"); !strings.Contains(defaults, `POOLS="--pools-configmap `) ||
		!strings.Contains(page, `POOLS="--pools-configmap `) {
		t.Error("the file of defaults, or the page, does not show POOLS with a ConfigMap")
	}
}

// TestLocksOfLabs: what root removes after a dead laboratory is written where no service can write.
func TestLocksOfLabs(t *testing.T) {
	units, err := filepath.Glob("*.service")
	if err != nil || len(units) == 0 {
		t.Fatalf("units %q, error %v", units, err)
	}
	for _, unit := range units {
		for _, match := range directoryPattern.FindAllStringSubmatch(text(t, "deploy/package/"+unit), -1) {
			if of := "/run/" + match[1] + "/"; strings.HasPrefix(claim.Path("0000"), of) {
				t.Errorf("%s is below %s of %s", claim.Path("0000"), of, unit)
			}
		}
	}
}

// TestPurge: the purge of a package takes away the state of the units that its installation has enabled, and the
// directories below /run that they leave at a stop.
func TestPurge(t *testing.T) {
	_, ofUser := of(t, "deploy/package/nfpm.yaml")
	beforeUser, _, found := strings.Cut(ofUser, "userdel jeoul")
	if !found {
		t.Fatal("no script removes the user jeoul")
	}
	for _, config := range []string{"deploy/package/nfpm.yaml", "deploy/package/kubernetes/nfpm.yaml"} {
		installed, removed := of(t, config)
		_, purge, _ := strings.Cut(removed, `[ "$1" = purge ]`)
		if !strings.Contains(installed, "deb-systemd-helper enable") {
			t.Fatalf("%s: no script enables units", config)
		}
		if !strings.Contains(purge, "deb-systemd-helper purge") {
			t.Errorf("%s: no purge of the units' state", config)
		}
		units := unitPattern.FindAllString(installed, -1)
		slices.Sort(units)
		for _, unit := range slices.Compact(units) {
			if !strings.Contains(purge, unit) {
				t.Errorf("%s: the purge leaves the state of %s", config, unit)
			}
			definition := text(t, filepath.Join(filepath.Dir(config), unit))
			for _, match := range directoryPattern.FindAllStringSubmatch(definition, -1) {
				removal := regexp.MustCompile(`rm -rf .*/run/` + regexp.QuoteMeta(match[1]) + `(\s|$)`)
				if !strings.Contains(definition, "RuntimeDirectoryPreserve=yes") {
					continue
				}
				if !removal.MatchString(purge) {
					t.Errorf("%s: the purge leaves /run/%s of %s", config, match[1], unit)
				}
				// The next user with that number would own the files that are left there.
				if !removal.MatchString(beforeUser) {
					t.Errorf("the user jeoul is removed before its files in /run/%s", match[1])
				}
			}
		}
	}
}

// TestRestartSignal: a restart leaves the data plane in every state of a unit. systemd runs ExecStop in the running
// state only; in a start or a reload it sends a signal at once.
func TestRestartSignal(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```ini\n(.*?)```")
	units := map[string]string{"deploy/package/jeoul.service": text(t, "deploy/package/jeoul.service")}
	for _, page := range []string{"docs/guides/restart.md", "docs/start/l2dsr.md"} {
		for _, block := range blocks.FindAllStringSubmatch(text(t, page), -1) {
			units[page] += block[1]
		}
	}
	for name, unit := range units {
		if !strings.Contains(unit, "kill -USR2 $MAINPID") {
			t.Errorf("%s: ExecStop does not tell a restart from a stop", name)
		}
		if !regexp.MustCompile(`(?m)^RestartKillSignal=SIGUSR2$`).MatchString(unit) {
			t.Errorf("%s: a restart during a start or a reload sends SIGTERM, which is a stop", name)
		}
	}
}

// TestStartTimeout: systemd lets HAProxy take its time in a start, first for a check of its configuration and then for
// the start or the reload with it. A start that it ends is a stop.
func TestStartTimeout(t *testing.T) {
	match := regexp.MustCompile(`(?m)^TimeoutStartSec=(\d+)$`).FindStringSubmatch(text(t, "deploy/package/jeoul.service"))
	if match == nil {
		t.Fatal("jeoul.service has no TimeoutStartSec")
	}
	if limit, err := time.ParseDuration(match[1] + "s"); err != nil || limit <= 2*proxy.ServeTimeout {
		t.Errorf("a start may take %s (%v), want more than twice %s", limit, err, proxy.ServeTimeout)
	}
}
