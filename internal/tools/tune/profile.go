// SPDX-License-Identifier: Apache-2.0

package tune

import (
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Role is the task of a host.
type Role string

// The roles. RoleProxy is a balancer in ModeProxy. It is no value on the command line: items name it to say that such a
// balancer has sockets.
const (
	RoleBalancer Role = "balancer"
	RoleWeb      Role = "web"
	RoleClient   Role = "client"
	RoleProxy    Role = "proxy"
)

// Roles are the roles that a host can have.
var Roles = []Role{RoleBalancer, RoleWeb, RoleClient}

// ModeProxy is the mode of a balancer that terminates its clients' connections.
const ModeProxy = string(lb.ModeProxy)

// Modes returns the modes that a host can be tuned for.
func Modes() []string {
	var names []string
	for _, mode := range lb.Modes {
		names = append(names, string(mode))
	}
	return names
}

// Compare is the criterion for a value.
type Compare string

// The criteria. The zero value means CompareEqual.
const (
	CompareEqual   Compare = "equal"
	CompareAtLeast Compare = "at-least" // number by number
	CompareAtMost  Compare = "at-most"
	CompareCovers  Compare = "covers" // a range of two numbers
	CompareCPUs    Compare = "cpu-list"
	CompareMask    Compare = "cpu-mask"
	CompareNonzero Compare = "nonzero"
)

var compares = []Compare{CompareEqual, CompareAtLeast, CompareAtMost, CompareCovers, CompareCPUs, CompareMask,
	CompareNonzero}

// Item is a requirement of a profile on a host.
type Item struct {
	ID string `yaml:"id" json:"id"`
	// Setting is a kind and a name, such as "sysctl net.core.somaxconn". The name may contain {interface}, {rx}, {tx},
	// {irq}, {cpu} and {service}, which stand for all of them.
	Setting string `yaml:"setting" json:"setting"`
	// Scope is "machine" for a setting that looks like a namespace's but is not.
	Scope   string   `yaml:"scope,omitempty" json:"scope,omitempty"`
	Roles   []Role   `yaml:"roles" json:"roles"`
	Modes   []string `yaml:"modes,omitempty" json:"modes,omitempty"`
	Value   Value    `yaml:"value,omitempty" json:"value,omitzero"`
	Compare Compare  `yaml:"compare,omitempty" json:"compare,omitempty"`
	// Accept are other values that are as good.
	Accept []string `yaml:"accept,omitempty" json:"accept,omitempty"`
	Unit   string   `yaml:"unit,omitempty" json:"unit,omitempty"`
	// Matters means that a host that differs has a problem and not only less speed.
	Matters bool `yaml:"matters,omitempty" json:"matters,omitempty"`
	// ReadOnly means that the setting is read and never written.
	ReadOnly bool `yaml:"readonly,omitempty" json:"readonly,omitempty"`
	// Irreversible means that writing has side effects (such as the loss of addresses) that writing the old value does
	// not undo. The setting is never written.
	Irreversible bool      `yaml:"oneway,omitempty" json:"oneway,omitempty"`
	Needs        Needs     `yaml:"needs,omitempty" json:"needs,omitzero"`
	Why          string    `yaml:"why" json:"why"`
	Cost         string    `yaml:"cost,omitempty" json:"cost,omitempty"`
	Source       string    `yaml:"source" json:"source"`
	Except       string    `yaml:"except,omitempty" json:"except,omitempty"`
	Document     *Document `yaml:"document,omitempty" json:"document,omitempty"`
	// Drop removes a built-in item.
	Drop bool `yaml:"drop,omitempty" json:"-"`
}

// Needs are the conditions that a host must meet for an item to apply.
type Needs struct {
	// Card is "physical" for an item that virtual interfaces do not have.
	Card string `yaml:"card,omitempty" json:"card,omitempty"`
	// Queues is the minimum of the number of queues that a card can have.
	Queues int `yaml:"queues,omitempty" json:"queues,omitempty"`
	// Cores is the minimum number of CPUs.
	Cores int `yaml:"cores,omitempty" json:"cores,omitempty"`
	// NUMA requires more than one node.
	NUMA bool `yaml:"numa,omitempty" json:"numa,omitempty"`
	// Conntrack requires that connections are tracked on the host.
	Conntrack bool `yaml:"conntrack,omitempty" json:"conntrack,omitempty"`
	// Kernel is the oldest kernel version with the setting, such as "5.12".
	Kernel string `yaml:"kernel,omitempty" json:"kernel,omitempty"`
}

// Document has the values of experiment 1.
type Document struct {
	Value  string          `yaml:"value,omitempty" json:"value,omitempty"`
	Values map[Role]string `yaml:"values,omitempty" json:"values,omitempty"`
	// Why is the reason why the profile differs; empty if they agree.
	Why string `yaml:"why,omitempty" json:"why,omitempty"`
}

// For returns experiment 1's value for a role; empty if there is none.
func (d *Document) For(role Role) string {
	if d == nil {
		return ""
	}
	if value, ok := d.Values[role]; ok {
		return value
	}
	return d.Value
}

// Profile is a list of items.
type Profile struct {
	Items []Item `yaml:"items" json:"items"`
}

//go:embed profile.yaml
var builtIn []byte

// BuiltInYAML returns the text of the built-in profile.
func BuiltInYAML() string { return string(builtIn) }

// Load returns the built-in profile with the changes in the file at path, if path is not empty. Errors are problems
// with file, line and field.
func Load(path string) (*Profile, error) {
	base, err := Parse("profile.yaml", builtIn)
	if err != nil || path == "" {
		return base, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the profile: %w", err)
	}
	own, err := parse(path, data, base)
	if err != nil {
		return nil, err
	}
	return base.with(own), nil
}

// with returns the profile with another's items. They replace items with the same id, or follow the others.
func (p *Profile) with(own *Profile) *Profile {
	all := slices.Clone(p.Items)
	for _, item := range own.Items {
		i := slices.IndexFunc(all, func(it Item) bool { return it.ID == item.ID })
		switch {
		case i < 0:
			all = append(all, item)
		case item.Drop:
			all = slices.Delete(all, i, i+1)
		default:
			all[i] = item
		}
	}
	return &Profile{all}
}

// Find returns the item with an id, and false if there is none.
func (p *Profile) Find(id string) (Item, bool) {
	i := slices.IndexFunc(p.Items, func(it Item) bool { return it.ID == id })
	if i < 0 {
		return Item{}, false
	}
	return p.Items[i], true
}

// Only returns the profile with only the named items. The error is ErrItem, with the names that exist.
func (p *Profile) Only(ids []string) (*Profile, error) {
	if len(ids) == 0 {
		return p, nil
	}
	var chosen []Item
	for _, id := range ids {
		item, ok := p.Find(id)
		if !ok {
			return nil, fmt.Errorf("%q: %w; it has %s", id, ErrItem, strings.Join(p.IDs(), ", "))
		}
		chosen = append(chosen, item)
	}
	return &Profile{chosen}, nil
}

// Of returns the profile with only a role's items. For a balancer these are the items of every mode.
func (p *Profile) Of(role Role) *Profile {
	var own []Item
	for _, item := range p.Items {
		if slices.Contains(item.Roles, role) || role == RoleBalancer && slices.Contains(item.Roles, RoleProxy) {
			own = append(own, item)
		}
	}
	return &Profile{own}
}

// IDs lists the items' ids.
func (p *Profile) IDs() []string {
	var ids []string
	for _, item := range p.Items {
		ids = append(ids, item.ID)
	}
	return ids
}

// isFor reports whether the item is for hosts of a role and mode. If not, it returns the reason.
func (it Item) isFor(role Role, mode string) (bool, string) {
	roles := []Role{role}
	if role == RoleBalancer && mode == ModeProxy {
		roles = append(roles, RoleProxy)
	}
	if !slices.ContainsFunc(it.Roles, func(r Role) bool { return slices.Contains(roles, r) }) {
		return false, "not for a " + string(role)
	}
	if len(it.Modes) > 0 && !slices.Contains(it.Modes, mode) {
		return false, "not in mode " + mode
	}
	return true, ""
}
