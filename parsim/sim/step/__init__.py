"""What is simulated: a job and a plan come in, priced actions of each class of replicas leave."""
