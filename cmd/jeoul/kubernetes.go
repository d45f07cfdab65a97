// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// kubernetesProgram is the program that follows a cluster: a Kubernetes client is as large as all of jeoul.
const kubernetesProgram = "jeoul-kubernetes"

// kubernetesCmd runs kubernetesProgram in the place of this one.
type kubernetesCmd struct {
	Arguments []string `arg:"" optional:"" name:"argument" help:"Arguments of jeoul-kubernetes: --kubeconfig FILE --pools FILE, and others that its --help lists."`
}

// Help names the program that the command runs.
func (kubernetesCmd) Help() string {
	return `Has the balancer of this host serve Services of type LoadBalancer, by the program jeoul-kubernetes, which is a
package of its own.`
}

// Run returns only if the program cannot be run.
func (c *kubernetesCmd) Run() error {
	path, err := findKubernetes(os.Executable, exec.LookPath)
	if err != nil {
		return err
	}
	err = unix.Exec(path, append([]string{kubernetesProgram}, c.Arguments...), os.Environ())
	return fmt.Errorf("run %s: %w", path, err)
}

// findKubernetes returns where the program is: beside this one, in libexec, or in PATH.
func findKubernetes(self func() (string, error), look func(string) (string, error)) (string, error) {
	if own, err := self(); err == nil {
		dir := filepath.Dir(own)
		for _, path := range []string{filepath.Join(dir, kubernetesProgram),
			filepath.Join(dir, "../libexec/jeoul", kubernetesProgram)} {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	path, err := look(kubernetesProgram)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", fmt.Errorf(
			"the program %s is not installed: install the package %[1]s, or put the program beside jeoul or into PATH (`make build-kubernetes` makes it)",
			kubernetesProgram)
	}
	return path, err
}
