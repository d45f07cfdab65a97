// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/text/nearest"
)

// The bench's own variables.
const (
	varInterface = "jeoul_interface"
	varAddress   = "jeoul_address"
	varVIP       = "jeoul_vip"
	varFullNAT   = "jeoul_fullnat_address"
)

// knownVars are the variables that the bench accepts. They include variables without a meaning for the bench, but for
// Ansible.
var knownVars = []string{
	varInterface, varAddress, varVIP, varFullNAT,
	// The roles' (see deploy/ansible).
	"jeoul_tuning", "jeoul_packages", "jeoul_binary",
	"ansible_host", "ansible_port", "ansible_user", "ansible_ssh_private_key_file", "ansible_ssh_common_args",
	"ansible_ssh_extra_args", "ansible_become", "ansible_become_method", "ansible_become_user", "ansible_connection",
	"ansible_python_interpreter", "ansible_ssh_pipelining", "ansible_pipelining", "ansible_shell_type",
	"ansible_shell_executable",
	"ansible_scp_extra_args", "ansible_sftp_extra_args", "ansible_ssh_executable", "ansible_ssh_transfer_method",
}

// oldVars maps previous names of variables, which Ansible still accepts, to the present ones.
var oldVars = map[string]string{"ansible_ssh_host": "ansible_host", "ansible_ssh_port": "ansible_port",
	"ansible_ssh_user": "ansible_user"}

// refusedVars are variables with a meaning that the bench cannot implement.
var refusedVars = map[string]string{
	"ansible_password":         "the bench does not use passwords; give ansible_ssh_private_key_file, or load a key into ssh-agent",
	"ansible_ssh_pass":         "the bench does not use passwords; give ansible_ssh_private_key_file, or load a key into ssh-agent",
	"ansible_become_password":  "the bench does not use passwords; let the user use sudo without one (NOPASSWD)",
	"ansible_become_pass":      "the bench does not use passwords; let the user use sudo without one (NOPASSWD)",
	"ansible_sudo_pass":        "the bench does not use passwords; let the user use sudo without one (NOPASSWD)",
	"ansible_ssh_args":         "these would replace what the bench itself says to ssh; use ansible_ssh_common_args",
	"ansible_private_key_file": "use ansible_ssh_private_key_file",
}

// acceptedValues are the only values that the bench accepts for some variables.
var acceptedValues = map[string][]string{
	"ansible_connection":    {"ssh", "smart", "openssh"},
	"ansible_become_method": {"sudo"},
	"ansible_become_user":   {"root"},
}

// checkVars reports invalid variables. Variables of other roles are ignored, unless they resemble one of the bench's.
func (p *parser) checkVars() {
	for _, name := range sortedKeys(p.groups) {
		p.checkVarsOf(name, p.groups[name].vars)
	}
	for _, name := range sortedKeys(p.hosts) {
		p.checkVarsOf(name, p.hosts[name].vars)
	}
}

func (p *parser) checkVarsOf(of string, vars map[string]value) {
	for _, name := range sortedKeys(vars) {
		v := vars[name]
		if now := oldVars[name]; now != "" {
			delete(vars, name)
			vars[now] = v
			continue
		}
		field := of + "." + name
		switch accepted := acceptedValues[name]; {
		case refusedVars[name] != "":
			p.fail(v.line, field, "%s", refusedVars[name])
		case accepted != nil && !slices.Contains(accepted, v.text):
			p.fail(v.line, field, "%q is not possible; use %s", v.text, strings.Join(accepted, " or "))
		case slices.Contains(knownVars, name):
		case nearest.Word(name, knownVars) != "":
			p.fail(v.line, field, "unknown variable; did you mean %s?", nearest.Word(name, knownVars))
		case strings.HasPrefix(name, "jeoul_") || strings.HasPrefix(name, "ansible_"):
			p.fail(v.line, field, "unknown variable; the bench knows %s", strings.Join(knownVars, ", "))
		}
	}
}

// yesOrNo reads a boolean as YAML 1.1 and Ansible write it.
func yesOrNo(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "yes", "true", "on", "1":
		return true, nil
	case "no", "false", "off", "0", "":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", text)
}

// expandHome replaces the ~/ at the beginning of a path by the user's home directory.
func expandHome(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func copyVars(to, from map[string]value) { maps.Copy(to, from) }
