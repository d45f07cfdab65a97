// SPDX-License-Identifier: Apache-2.0

package report

// koreanDNS are about name servers behind a balancer.
var koreanDNS = []phrase{
	{"how many queries a second are answered by one and by more name servers, and what does that cost the machine", "네임 서버 하나와 여럿이 초당 질의 몇 건에 응답하고, 기계는 어떤 비용을 치르는가"},
	{"DNS behind a balancer for UDP", "UDP 밸런서 뒤의 DNS"}, {"DNS queries (dnsperf)", "DNS 질의(dnsperf)"}, {"first", "첫째"}, {"second", "둘째"}, {"even", "균등"}, {"full", "가득"},
	{"asking for {}", "질의 대상 {1}"}, {"at most {n} queries/s a generator", "생성기당 최대 초당 질의 {1}건"}, {"{n} threads a generator", "생성기당 스레드 {1}개"}, {"Question", "질의 대상"}, {"At most", "최대"}, {"Generator threads", "생성기 스레드"},
	// Tables and charts.
	{"Queries a second by number of name servers", "네임 서버 수별 초당 질의"}, {"Queries a second by number of name servers: {}", "네임 서버 수별 초당 질의: {1}"},
	{"Medians over the valid repeats; in brackets × {} with as many.", "유효한 반복의 중앙값이며, 괄호 안은 같은 수의 네임 서버일 때 {1} 대비 배수입니다."},
	{"What the machine did", "기계가 한 일"}, {"Medians over the valid repeats. The balancer's CPU time includes its kernel work; user, system, softirq and idle are of the whole machine.", "유효한 반복의 중앙값입니다. 밸런서의 CPU 시간은 커널 작업을 포함하며, user, system, softirq, 유휴는 기계 전체의 것입니다."},
	{"Latency as dnsperf clocked it; it tells no percentiles. Spreads are the lowest and the highest repeat.", "dnsperf가 잰 지연이며 dnsperf는 백분위를 말하지 않습니다. 산포는 반복의 최소와 최대입니다."},
	{"Busiest over idlest: how many more queries the busiest name server had than the idlest.", "최다/최소 백엔드: 가장 바쁜 네임 서버가 가장 한가한 것보다 질의가 몇 % 많은지."},
	{"Server CPU", "서버 CPU"}, {"Relay CPU", "중계 CPU"}, {"Context switches", "문맥 전환"}, {"User", "User"}, {"System", "System"}, {"Softirq", "Softirq"}, {"Min", "최소"}, {"Lost percent", "유실, %"}, {"Datagram drops", "데이터그램 폐기"},
	{"µs of balancer CPU per query", "질의당 밸런서 CPU, µs"}, {"context switches/s", "문맥 전환/초"}, {"name servers", "네임 서버"}, {"More is better. Medians over the repeats.", "클수록 좋습니다. 반복의 중앙값입니다."},
	{"Of the whole machine, a second. What is forwarded in the kernel wakes nobody on its way. Bars are medians, whiskers the lowest and highest repeat.", "기계 전체의 초당 값입니다. 커널에서 전달되는 것은 지나면서 아무도 깨우지 않습니다. 막대는 중앙값, 수염은 반복의 최소와 최대입니다."},
	// The verdict.
	{"round robin, the busiest name server over the idlest,", "라운드 로빈, 가장 한가한 것 대비 가장 바쁜 네임 서버의 초과"}, {"{} with round robin, the busiest name server over the idlest,", "{1} 라운드 로빈, 가장 한가한 것 대비 가장 바쁜 네임 서버의 초과"},
	// How to read them.
	{"Generator, balancer and servers on one machine", "한 기계의 생성기, 밸런서, 서버"}, {"As in the document. Where the machine is full, one name server more adds nothing, and a balancer that needs less of it leaves more to them: that is what differs here. On machines of their own the balancers' CPU time per query carries over best.", "문서와 같습니다. 기계가 가득 차면 네임 서버를 늘려도 더해지는 것이 없고, 기계를 덜 쓰는 밸런서가 네임 서버에 더 남깁니다. 여기서 다른 것은 그 점입니다. 기계를 나누면 질의당 밸런서 CPU 시간이 가장 잘 옮겨집니다."},
	{"Sockets", "소켓"}, {"Balancers keep a flow's backend, and a flow of UDP is a socket of a client. With as few sockets as the document's, backends can only be used evenly where their number divides the sockets; with three sockets the fourth name server idles. Several generators, and the threads of one, ask from sockets of their own, each as fast as it gets to run, so backends are not asked alike then.", "밸런서는 플로의 백엔드를 유지하며 UDP의 플로는 클라이언트의 소켓입니다. 문서처럼 소켓이 적으면 소켓 수가 백엔드 수로 나누어떨어질 때만 백엔드가 고르게 쓰입니다. 소켓이 셋이면 네 번째 네임 서버는 놉니다. 여러 생성기와 한 생성기의 여러 스레드는 저마다 자기 소켓으로, 실행되는 만큼 빠르게 물으므로 그때는 백엔드에 고르게 묻지 않습니다."},
	{"Server and relay CPU", "서버와 중계의 CPU"}, {"A name server's process in per cent of one core, the mean of those that were asked, and a relay's where there is one for each server; with the packet work that ran on top of it. The machine's user, system, softirq and idle are shares of all its cores.", "코어 하나 대비 네임 서버 프로세스의 %이며 질의를 받은 것의 평균입니다. 서버마다 중계가 있으면 중계의 것도 있습니다. 그 위에서 돈 패킷 작업을 포함합니다. 기계의 user, system, softirq, 유휴는 전체 코어 대비 몫입니다."},
	{"Queries without an answer in time. dnsperf waits for each of them, so a trial in which more than {n} % were lost is not valid.", "제때 답이 없던 질의입니다. dnsperf는 하나하나 기다리므로 {1} % 넘게 잃은 시행은 유효하지 않습니다."},
	// The document's figures.
	{"DNS container 부하 시험 (dns-containers-behind-iptables.ko.txt)", "DNS 컨테이너 부하 시험 (dns-containers-behind-iptables.ko.txt)"},
	{"Intel S5520UR, two Xeon E5620 at 2.4 GHz (16 cores with HT), 64 GiB; BIND in Docker containers, dnsperf on the same host", "Intel S5520UR, Xeon E5620 2.4GHz 두 개(HT로 16코어), 64GiB; Docker 컨테이너의 BIND, 같은 호스트의 dnsperf"},
	{"Experiment", "실험"}, {"Way", "방법"}, {"Generators", "생성기"}, {"CPU of a named (%)", "named의 CPU (%)"}, {"CPU of a relay (%)", "중계의 CPU (%)"}, {"idle (%)", "유휴 (%)"},
	{"one name server alone answered 25,000 to 30,000 queries/s without -Q; the document's summary says 30,000 with one, then 60,000, 90,000 and 120,000 with two, three and four", "네임 서버 하나는 -Q 없이 초당 질의 25,000–30,000건에 응답함; 문서의 요약은 하나일 때 30,000, 둘, 셋, 넷일 때 60,000, 90,000, 120,000이라고 함"},
	{"context switches are dstat's, given for the first experiment with and without docker-proxy; the document gives 350 to 400 and 300 % for a named behind docker-proxy in two places", "문맥 전환은 dstat의 값으로 첫 실험에서 docker-proxy가 있을 때와 없을 때 주어짐; 문서는 docker-proxy 뒤 named에 대해 두 곳에서 350–400 %와 300 %라고 함"},
	{"the generator ran on the same machine as the name servers, as here; the document does not say which part was the limit", "생성기는 여기처럼 네임 서버와 같은 기계에서 돌았음; 문서는 어느 부분이 한계였는지 말하지 않음"},
	// Notes.
	{"name servers are BIND (named), one on each server, with its own defaults for threads, no recursion and no query log; every query is for \"{}\", whose zone each of them has", "네임 서버는 서버마다 하나인 BIND(named)이며 스레드는 기본값, 재귀와 질의 로그 없음; 모든 질의는 \"{1}\"이며 저마다 그 존을 가짐"},
	{"name servers are BIND (named), one on each server, with no recursion, no query log and room for {n} MiB of waiting queries; every query is for \"{}\", whose zone each of them has; {}", "네임 서버는 서버마다 하나인 BIND(named)이며 재귀와 질의 로그 없이 기다리는 질의를 위한 {1} MiB의 자리가 있음; 모든 질의는 \"{2}\"이며 저마다 그 존을 가짐; {3}"},
	{"each has as many threads as its machine has cores", "스레드는 저마다 자기 기계의 코어 수만큼"}, {"each has its share of the machine's cores for threads (-n {n})", "스레드는 저마다 기계의 코어를 나눈 몫(-n {1})"},
	{"{n} of {n} points of ours reached the rate that dnsperf was told (-Q), which is nobody's limit; targets are judged by the others.", "우리 것의 지점 {2}개 중 {1}개는 dnsperf에 정해 준 속도(-Q)에 이르렀고 그것은 누구의 한계도 아님; 목표는 나머지로 판정함."},
	{"At {n} of {n} points of ours the machine was not full: dnsperf asked no more; targets are judged by the others.", "우리 것의 지점 {2}개 중 {1}개에서는 기계가 가득 차지 않음: dnsperf가 더 묻지 않음; 목표는 나머지로 판정함."},
	{"queries per second are answers without an error, divided by what dnsperf took from its first query to its last answer; with several generators the sum of theirs. dnsperf is a closed loop: it has up to {n} queries under way (-q) and sends the next when one is answered, but no more a second than its rate (-Q). It tells no percentiles", "초당 질의는 오류 없는 응답 수를 dnsperf의 첫 질의부터 마지막 응답까지의 시간으로 나눈 것이며, 생성기가 여럿이면 그 합. dnsperf는 폐루프: 최대 {1}개 질의를 진행하며(-q) 응답이 오면 다음을 보내되 초당 정해진 수(-Q)를 넘지 않음. 백분위는 말하지 않음"},
	{"a trial in which more than {n} % of the queries were lost is not valid: dnsperf waits for each of them as long as it takes to call it lost, and sends less meanwhile", "질의를 {1} % 넘게 잃은 시행은 유효하지 않음: dnsperf는 유실로 볼 때까지 하나하나 기다리며 그동안 덜 보냄"},
	{"queries of each backend are the datagrams that its kernel handed to the name server (UdpInDatagrams). Balancers that keep a flow's backend send all queries of one socket to one backend: counts are even where the sockets are a multiple of the backends", "백엔드별 질의는 그 커널이 네임 서버에 건넨 데이터그램(UdpInDatagrams). 플로의 백엔드를 유지하는 밸런서는 소켓 하나의 질의를 모두 한 백엔드로 보냄: 소켓 수가 백엔드 수의 배수이면 고름"},
	{"the name servers' CPU is that of the processes, in per cent of one core, packet work that ran on top of them included; user, system, softirq (interrupts included) and idle are of the whole machine", "네임 서버의 CPU는 그 위에서 돈 패킷 작업을 포함한 프로세스의 것(코어 하나 대비 %); user, system, softirq(인터럽트 포함), 유휴는 기계 전체의 것"},
	{"{n} generators: there are {n} clients", "생성기 {1}개: 클라이언트가 {2}개뿐임"}, {"{n} backends: there are {n} servers", "백엔드 {1}개: 서버가 {2}개뿐임"},
	{"on machines, user, system, softirq and idle are of all machines together, and what other programs of a server are sent over UDP is among its queries", "기계에서 user, system, softirq, 유휴는 모든 기계를 합한 것이며, 서버의 다른 프로그램이 UDP로 받은 것도 질의에 들어감"},
	{"{n} queries, {n} % of all, had no answer within {}", "질의 {1}건(전체의 {2} %)에 {3} 안에 응답이 없음"}, {"{n} datagrams found a full socket (UdpRcvbufErrors)", "데이터그램 {1}개가 가득 찬 소켓을 만남(UdpRcvbufErrors)"}, {"no query reached {}", "질의가 닿지 않은 서버: {1}"}, {"{n} queries were answered with an error: {}", "질의 {1}건에 오류로 응답: {2}"},
	{"a process docker-proxy for each server, and iptables (statistic, mode nth) before them; the relays ask the servers from the balancer's own address", "서버마다 docker-proxy 프로세스가 있고 그 앞에 iptables(statistic, mode nth)가 있음; 중계는 밸런서 자체의 주소로 서버에 물음"},
}

// koreanLocal are about clients and containers on the balancer's own host.
var koreanLocal = []phrase{
	{"DNS containers on the balancer's host", "밸런서 호스트의 DNS 컨테이너"}, {"Clients on the balancer's own host", "밸런서 호스트 자신의 클라이언트"},
	{"from the balancer's host", "밸런서 호스트에서"}, {"from beyond the balancer's host", "밸런서 호스트 밖에서"}, {"From", "출발지"},
	{"its host's sockets, trial transfers included: {}", "시험 전송을 포함한 호스트 소켓: {1}"}, {"served {n}", "응대 {1}"},
	{"Balancer's host", "밸런서 호스트"}, {"Balancer's host CPU", "밸런서 호스트 CPU"}, {"the balancer's host", "밸런서 호스트"}, {"the balancer's host {n}", "밸런서 호스트 {1}"},
	{"servers are containers of the balancer's host: each has a veth into a bridge there, and its default route by that", "서버는 밸런서 호스트의 컨테이너: 저마다 그 호스트의 브리지에 veth가 있고 기본 경로가 그 브리지를 지남"},
	{"under a load from the balancer's host, generators and balancer share it: what the balancer costs cannot be told from them. The host's CPU time has both, with the kernel's work for the bridge and the containers' links; what it has beyond that of direct is the balancer's",
		"밸런서 호스트에서 거는 부하에서는 생성기와 밸런서가 한 호스트를 나누어 씀: 밸런서의 비용을 생성기와 나눌 수 없음. 호스트의 CPU 시간은 둘을 더하고 브리지와 컨테이너 링크에 든 커널 작업을 포함하며, direct보다 더 든 만큼이 밸런서의 것"},
	{"{n} containers", "컨테이너 {1}대"}, {"{n} client and {n} containers", "클라이언트 {1}대와 컨테이너 {2}대"}, {"{n} clients and {n} containers", "클라이언트 {1}대와 컨테이너 {2}대"},
}
