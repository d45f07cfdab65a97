// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/tools/tune/untracked"
)

// The connection tracking states of a service.
const (
	serviceTracked  = "tracked"
	serviceBypassed = "bypassed"
)

// tracking reads and sets whether the connections of services are tracked.
type tracking interface {
	state(s lb.ServiceKey) (string, error)
	set(s lb.ServiceKey, state string) error
}

// netfilter uses the kernel's rules in the calling thread's namespace.
type netfilter struct{}

func (netfilter) state(s lb.ServiceKey) (string, error) {
	bypassed, err := untracked.Bypassed(s)
	return trackingState(bypassed), err
}

func (netfilter) set(s lb.ServiceKey, state string) error {
	return untracked.Set(s, state == serviceBypassed)
}

func trackingState(bypassed bool) string {
	if bypassed {
		return serviceBypassed
	}
	return serviceTracked
}

// untrackedFile is a fake tree's JSON file with the services that bypass tracking.
type untrackedFile struct{ Tree }

const untrackedPath = "untracked.json"

func (u untrackedFile) load() (map[string]bool, error) {
	all := map[string]bool{}
	data, err := os.ReadFile(u.Path(untrackedPath))
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	return all, err
}

func (u untrackedFile) state(s lb.ServiceKey) (string, error) {
	all, err := u.load()
	return trackingState(all[untracked.Name(s)]), err
}

func (u untrackedFile) set(s lb.ServiceKey, state string) error {
	all, err := u.load()
	if err != nil {
		return err
	}
	delete(all, untracked.Name(s))
	if state == serviceBypassed {
		all[untracked.Name(s)] = true
	}
	if len(all) == 0 {
		err := os.Remove(u.Path(untrackedPath))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	data, err := json.Marshal(all)
	return errors.Join(err, os.WriteFile(u.Path(untrackedPath), data, 0o644))
}

// untrackedCommands returns the shell commands that make a service bypass tracking, or track it again.
func untrackedCommands(name, state string) string {
	s, err := untracked.ParseService(name)
	if err != nil {
		return "# " + err.Error()
	}
	if state != serviceBypassed {
		return fmt.Sprintf(
			"nft -a list table inet %s    # and `nft delete rule` with the handles of those with the comment %q",
			untracked.Table, name)
	}
	family := "ip"
	if s.VIP.Is6() {
		family = "ip6"
	}
	return fmt.Sprintf(`nft add table inet %[1]s
nft add chain inet %[1]s in '{ type filter hook prerouting priority raw; }'
nft add chain inet %[1]s out '{ type filter hook output priority raw; }'
nft add rule inet %[1]s in %[2]s daddr %[3]s %[4]s dport %[5]d notrack comment '"%[6]s"'
nft add rule inet %[1]s out %[2]s saddr %[3]s %[4]s sport %[5]d notrack comment '"%[6]s"'`, untracked.Table, family, s.VIP, s.Protocol, s.Port, name)
}
