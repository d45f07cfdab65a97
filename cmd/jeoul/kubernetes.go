// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/program"
)

// kubernetesProgram is the program that follows a cluster. It is separate, because a Kubernetes client is as large as
// all of jeoul.
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
	path, err := program.Find("kubernetes")
	if err != nil {
		return err
	}
	err = unix.Exec(path, append([]string{kubernetesProgram}, c.Arguments...), os.Environ())
	return fmt.Errorf("run %s: %w", path, err)
}
